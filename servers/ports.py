"""Picks the ports of a server."""

import random
import socket

LOOPBACK = "127.0.0.1"

_LOWEST, _BEYOND = 15_000, 32_000
"""Below what Linux gives to clients (32 768 and up): while a server is down, none of them takes its port."""

_TRIES = 1_000


def is_free(port: int) -> bool:
    """Whether a server could listen on it now. Connections of a server that has just ended do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def pick_port(wanted: int | None = None) -> int:
    """`wanted` if it is free, else one that is. Drawn at random, so that several who pick at once do not meet."""
    if wanted is not None and is_free(wanted):
        return wanted
    drawn = random.SystemRandom()
    for _ in range(_TRIES):
        port = drawn.randrange(_LOWEST, _BEYOND)
        if is_free(port):
            return port
    raise OSError(f"no free port on {LOOPBACK} from {_LOWEST} to {_BEYOND - 1}")
