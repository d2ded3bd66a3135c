"""Finds Chromium."""

from pathlib import Path

from servers.debian_packages import find_program

_REMEDY = "Install Chromium, so that chromium is on PATH. On Debian: apt-get install --no-install-recommends chromium"


def find_chromium() -> Path:
    """Return `chromium`, as `find_program` does."""
    return find_program("chromium", "chromium", _REMEDY)
