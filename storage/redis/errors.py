"""The translation of errors of a Redis server and of the network."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import SSLCertVerificationError

from redis import exceptions

from resequencer.storage_port import StorageRefused, StorageUnavailable, StorageWithheld

_RIGHTS = "give the user the rights that docs/operations.md lists"
_LOGIN = "check storage.redis.username and password, or those in the url"

_GOES_AWAY = {
    "ASK": "the slot is being moved to another node",
    "BUSY": "a script of another client blocks it",
    "CLUSTERDOWN": "the cluster does not serve all slots",
    "LOADING": "it is reading its data from the disk",
    "MASTERDOWN": "it is a replica without its master",
    "MISCONF": "it cannot write to its disk and refuses writes",
    "MOVED": "the slot has moved to another node",
    "NOREPLICAS": "fewer replicas are connected than it requires for a write",
    "OOM": "its memory is full (maxmemory): raise it; the service never drops waiting envelopes to free memory",
    "READONLY": "it is a replica; storage.redis.url must be that of the master",
    "TRYAGAIN": "the slot is being moved to another node",
    "UNKILLABLE": "a script of another client blocks it",
}
_FORBIDDEN_IN_SCRIPT = "user executing the script can't"
"""The text of NOPERM from scripts, in servers before 7.2."""

_UNKNOWN_READ_ONLY_SCRIPT = re.compile("(ERR )?unknown command .EVAL(SHA)?_RO", re.IGNORECASE)
_NO_SUCH_DATABASE = ("SELECT is not allowed in cluster mode", "DB index is out of range")
_NEEDS_A_PERSON = {
    "DENIED": "it is in protected mode; set a password and bind it to an address, or reach it over loopback",
    "NOAUTH": _LOGIN,
    "NOPERM": _RIGHTS,
    "WRONGPASS": _LOGIN,
    "WRONGTYPE": "a key of this namespace was written by another program; use a storage.namespace of your own, or another server",
}


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Talk to `server`, and translate its errors. An error of neither the server nor the network passes unchanged.

    Raises:
        StorageUnavailable: No answer in time, or a temporary error; the commands may have been executed.
        StorageRefused: Waiting does not help: no login, no right, a foreign key, an untrusted certificate.
    """
    try:
        yield
    except exceptions.DataError:
        raise
    except exceptions.RedisError as error:
        raise _meaning(server, error) from error


def _meaning(server: str, error: exceptions.RedisError) -> StorageRefused | StorageUnavailable:
    code = "NOPERM" if _FORBIDDEN_IN_SCRIPT in str(error) else error.status_code or str(error).partition(" ")[0]
    if code in _GOES_AWAY:
        return StorageUnavailable(f"{server}: {error}; {_GOES_AWAY[code]}")
    remedy = _find_remedy(code, error)
    if remedy is None and isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
        return StorageUnavailable(f"{server}: {error}")
    kind = StorageWithheld if remedy in (_LOGIN, _RIGHTS) else StorageRefused
    return kind(server, f"{error}; {remedy or 'this answer is not expected of a Redis server from version 6.2 on'}")


def _find_remedy(code: str, error: exceptions.RedisError) -> str | None:
    if code in _NEEDS_A_PERSON:
        return _NEEDS_A_PERSON[code]
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthenticationWrongNumberOfArgsError):
        return _LOGIN
    if _UNKNOWN_READ_ONLY_SCRIPT.match(str(error)):
        return "the view of operators needs Redis 7.0 or later, or Valkey; the service itself does not"
    if isinstance(error.__context__, SSLCertVerificationError):
        return "set storage.redis.tls.ca-file to the authority that signed the certificate"
    if str(error).startswith(_NO_SUCH_DATABASE):
        return "change the database number at the end of storage.redis.url, or remove it: a cluster has only 0"
    return None
