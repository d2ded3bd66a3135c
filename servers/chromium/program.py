"""Finds Chromium."""

import shutil
from pathlib import Path

from servers.debian_packages import find_program

_SHELL = "chromium-headless-shell"
_REMEDY = (
    f"Install Chromium, so that {_SHELL} or chromium is on PATH. On Debian: apt-get install --no-install-recommends {_SHELL}"
)


def find_chromium() -> Path:
    """Return Chromium's headless shell, as `find_program` does, or the whole browser where only that is on PATH.

    The shell draws the same pages in a third of the CPU time.
    """
    whole = shutil.which("chromium")
    return Path(whole) if whole and not shutil.which(_SHELL) else find_program(_SHELL, _SHELL, _REMEDY)
