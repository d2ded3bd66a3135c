"""Finds mosquitto."""

from pathlib import Path

from servers.debian_packages import find_program

_REMEDY = "Install mosquitto 2 or newer. On Debian and Ubuntu: apt-get install --no-install-recommends mosquitto"
_PLACES = "/usr/sbin"
"""Where the package puts it, which only root has on PATH."""


def find_mosquitto() -> Path:
    """Return `mosquitto`, as `find_program` does."""
    return find_program("mosquitto", "mosquitto", _REMEDY, _PLACES)
