"""Finds the Redis server."""

from pathlib import Path

from servers.debian_packages import find_program

_REMEDY = "Install Redis 7 or newer, so that redis-server is on PATH. On Debian and Ubuntu: apt-get install redis-server"


def find_redis() -> Path:
    """Return `redis-server`, as `find_program` does."""
    return find_program("redis-server", "redis-server", _REMEDY)
