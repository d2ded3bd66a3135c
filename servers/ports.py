"""Chooses the ports of a server."""

import random
import socket

LOOPBACK = "127.0.0.1"

_LOWEST, _BEYOND = 15_000, 32_000
"""Below the client ports of Linux (32 768 and up), so that no client takes the port of a server that is down."""

_TRIES = 1_000


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now. Leftover connections of an ended server do not count."""
    probe = _bound(port, shares=True)
    if probe is not None:
        probe.close()
    return probe is not None


def hold_port(wanted: int | None = None) -> socket.socket:
    """Return a socket that is bound to `wanted` if that is free, else to a random free port.

    It does not listen. While it is open, a server can listen on the port, and no other holder of a port gets this one, even
    while that server is down.
    """
    if wanted is not None and (found := _bound(wanted, shares=True)) is not None:
        return found
    drawn = random.SystemRandom()
    for _ in range(_TRIES):
        if (found := _bound(drawn.randrange(_LOWEST, _BEYOND), shares=False)) is not None:
            return found
    raise OSError(f"no free port on {LOOPBACK} from {_LOWEST} to {_BEYOND - 1}")


def _bound(port: int, *, shares: bool) -> socket.socket | None:
    """Return a socket that lets a server listen beside it. With `shares` others may hold the port, too."""
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shares))
        made.bind((LOOPBACK, port))
    except OSError:
        made.close()
        return None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
