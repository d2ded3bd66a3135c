"""The settings of what is served by HTTP (console, metrics and probes), and the sockets that listen as they say."""

import errno
import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import msgspec

from resequencer.errors import ResequencerError
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.list_types import Choices, Networks, Urls
from resequencer.keys.value_types import Choice, Duration, FilePath, SecretText, Switch, Text, Whole
from resequencer.order import OrderKind

HOST = Text(r"[A-Za-z0-9.:_-]{1,255}", "a host name or an address")
PORT = Whole(0, 65_535)
AUTHENTICATIONS = ("none", "basic", "proxy", "bearer")
EDIT = "edit"
"""In `http.approval`: a dead letter that is edited and sent again, beside the kinds of orders."""
INITIAL_STATE = "reset-to-initial"
"""In `http.approval`: a region that is reset to its initial state."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """An address to listen on; `port` 0 lets the system choose a free one.

    With `is_port_chosen` an operator has set the port, so no other one is taken in its place.
    """

    host: Annotated[str, Key(HOST)]
    port: Annotated[int, Key(PORT)]
    is_port_chosen: bool = False


class ProbesEndpoint(Listener, frozen=True, kw_only=True):
    """Where the supervisor answers `/health/live` and `/health/ready`, without a login."""


class MetricsEndpoint(Listener, frozen=True, kw_only=True):
    """Where the console's process answers `/metrics`, without a login."""


class HttpTls(msgspec.Struct, frozen=True):
    """The certificate chain and its key, both PEM; both or neither."""

    certificate_file: Annotated[Path | None, Key(FilePath("no TLS"))]
    key_file: Annotated[Path | None, Key(FilePath("no TLS"))]


class TrustedProxy(msgspec.Struct, frozen=True):
    """The proxies at `addresses` name the client. With `auth = proxy` they log people in, too, and name them in these headers."""

    addresses: Annotated[tuple[str, ...], Key(Networks())]
    user_header: Annotated[str, Key(Text(r"[A-Za-z0-9-]{1,64}", "the name of an HTTP header"))]
    roles_header: Annotated[str, Key(Text(r"[A-Za-z0-9-]{1,64}", "the name of an HTTP header"))]


class HttpSettings(Listener, frozen=True, kw_only=True):
    """`peers` are the consoles of the group's other machines, which answer to `peers_token`."""

    is_enabled: Annotated[bool, Key(Switch(), "enabled")]
    auth: Annotated[str, Key(Choice(AUTHENTICATIONS))]
    users_file: Annotated[Path, Key(FilePath("<run-directory>/console-users.json"))]
    proxy: Annotated[TrustedProxy, Section("proxy")]
    tls: Annotated[HttpTls, Section("tls")]
    peers: Annotated[tuple[str, ...], Key(Urls(("http", "https")))]
    peers_token: Annotated[str, Key(SecretText())]
    audit_retention_ms: Annotated[int, Key(Duration("1d", "3650d"))]
    approval: Annotated[tuple[str, ...], Key(Choices((*OrderKind, EDIT, INITIAL_STATE)))]
    probes: Annotated[ProbesEndpoint, Section("probes")]
    metrics: Annotated[MetricsEndpoint, Section("metrics")]


_OTHER_PORTS = 100
_BACKLOG = 128


class CannotListen(ResequencerError):
    """The address cannot be used; the text names it and the remedy."""

    def __init__(self, listener: Listener, error: OSError) -> None:
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
        super().__init__(f"{_address(listener.host, listener.port)} {reason}; free it, or set another host or port")


def listen(listener: Listener) -> socket.socket:
    """Listen at the address. If its default port is taken, at the next free one; a port that an operator chose is the only one.

    Raises:
        CannotListen: No port can be used.
    """
    others = 0 if listener.is_port_chosen or not listener.port else _OTHER_PORTS
    for port in range(listener.port, min(listener.port + others, 65_535) + 1):
        try:
            return _bound(listener.host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == listener.port + others:
                raise CannotListen(listener, error) from error
    raise CannotListen(listener, OSError(errno.EADDRINUSE, "is taken"))


def url_of(bound: socket.socket, scheme: str = "http") -> str:
    """Return the URL at which the socket listens. An address that means all of a machine's is shown as its loopback address."""
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if bound.family is socket.AF_INET6 else "127.0.0.1"
    return f"{scheme}://{_address(host, port)}"


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
