"""Sockets that listen where the settings say."""

import errno
import ipaddress
import socket

from notification_service.console.settings import Listener
from resequencer.errors import ResequencerError

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
    """Return the URL at which the socket listens. An address that means all of a machine's is told as its loopback address."""
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
