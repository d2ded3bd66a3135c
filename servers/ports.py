"""Chooses the ports of a server."""

import random
import socket

LOOPBACK = "127.0.0.1"

_LOWEST, _BEYOND = 15_000, 32_000
"""Below the client ports of Linux (32 768 and up), so that no client takes the port of a server that is down."""

_TRIES = 1_000


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now. Leftover connections of an ended server do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def pick_port(wanted: int | None = None) -> int:
    """Return `wanted` if it is free, else a random free port, so that processes that choose at once do not collide."""
    if wanted is not None and is_free(wanted):
        return wanted
    drawn = random.SystemRandom()
    for _ in range(_TRIES):
        port = drawn.randrange(_LOWEST, _BEYOND)
        if is_free(port):
            return port
    raise OSError(f"no free port on {LOOPBACK} from {_LOWEST} to {_BEYOND - 1}")
