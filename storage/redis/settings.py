"""The settings of the Redis storage. Imports no client, because that takes a quarter of a second."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from resequencer.keys.configuration_key import Key
from resequencer.keys.value_types import Duration, FilePath, SecretText, Text, Url, Whole

Address = tuple[str, int]
"""Host and port; for a Unix socket its path and 0."""

_PORT = 6_379


class RedisPlace(msgspec.Struct, frozen=True):
    """`addresses` are the server, or the nodes of a cluster to ask first. `options` are those of redis-py's connections.

    With `is_tls` the server's certificate and its name are checked. The options may contain a password: they are never shown.
    """

    addresses: tuple[Address, ...]
    is_tls: bool = False
    is_socket: bool = False
    options: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"RedisPlace({', '.join(map(address_text, self.addresses))})"


class RedisLogin(msgspec.Struct, frozen=True):
    """The settings beside the URL. A user or password given here takes precedence over that of the URL. Files are PEM."""

    username: Annotated[str, Key(Text(r"[^\x00-\x1f]{0,256}", "a text"))] = ""
    password: Annotated[str, Key(SecretText())] = ""
    ca_file: Annotated[Path | None, Key(FilePath("those that the system trusts"), "tls.ca-file")] = None
    certificate_file: Annotated[Path | None, Key(FilePath("none"), "tls.certificate-file")] = None
    key_file: Annotated[Path | None, Key(FilePath("none"), "tls.key-file")] = None

    def __repr__(self) -> str:
        return f"RedisLogin({self.username!r})"


def address_text(address: Address) -> str:
    host, port = address
    return f"{host}:{port}" if port else host


def read_place(url: str, login: RedisLogin) -> RedisPlace:
    """Parse `redis://user:password@host:port,host:port/database`, the same with `rediss://` for TLS, or `unix:///path?db=1`.

    Raises:
        ValueError: With the problem, without the password.
    """
    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    options: dict[str, Any] = {
        "db": _database(parts),
        "username": login.username or unquote(name) or None,
        "password": login.password or unquote(password) or None,
    }
    if parts.scheme == "unix":
        return RedisPlace(((unquote(parts.path), 0),), is_socket=True, options=options)
    is_tls = parts.scheme == "rediss"
    if is_tls:
        options |= _tls(login)
    elif login.ca_file or login.certificate_file or login.key_file:
        raise ValueError("has the scheme redis://, but certificates are configured under tls: use rediss://")
    return RedisPlace(tuple(map(_address, hosts.split(","))), is_tls=is_tls, options=options)


def _database(parts: SplitResult) -> int:
    key, _, socket_number = parts.query.partition("=")
    text = socket_number if parts.scheme == "unix" else parts.path.strip("/")
    if (parts.query and (key != "db" or parts.scheme != "unix")) or parts.fragment:
        raise ValueError("has options behind ? or #; only unix://…?db=N is allowed, TLS and time-outs have keys of their own")
    if text and not text.isdecimal():
        raise ValueError(f"names the database {text!r}; expected: a number")
    return int(text or 0)


def _address(text: str) -> Address:
    parts = urlsplit(f"//{text}")
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"has an invalid port in {text!r}; expected: a number up to 65535") from error
    if not parts.hostname:
        raise ValueError("has no host")
    return parts.hostname, port or _PORT


def _tls(login: RedisLogin) -> dict[str, Any]:
    if (login.certificate_file is None) != (login.key_file is None):
        raise ValueError("needs both tls.certificate-file and tls.key-file, or neither")
    files = {"ssl_ca_certs": login.ca_file, "ssl_certfile": login.certificate_file, "ssl_keyfile": login.key_file}
    return {name: str(file) for name, file in files.items() if file is not None}


class RedisServerSettings(RedisLogin, frozen=True, kw_only=True):
    """The keys of the storage. `url` is a `Secret`, for it may hold a password. The defaults are in conf/reference.conf."""

    url: Annotated[str, Key(Url(("redis", "rediss", "unix")))]
    timeout_ms: Annotated[int, Key(Duration("100ms", "10s"))]
    wait_replicas: Annotated[int, Key(Whole(0, 10))]


class RedisSettings(msgspec.Struct, frozen=True):
    """`timeout_ms` bounds each call. With `wait_replicas` a commit succeeds only when that many replicas have it."""

    place: RedisPlace
    namespace: str
    timeout_ms: int
    wait_replicas: int

    def __post_init__(self) -> None:
        assert self.timeout_ms > 0
        assert self.wait_replicas >= 0
