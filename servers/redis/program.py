"""Finds the Redis server; on Debian and Ubuntu, root gets it installed."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers.errors import ProgramMissing
from servers.locked import locked

_REMEDY = "Install Redis 7 or newer, so that redis-server is on PATH. On Debian and Ubuntu: apt-get install redis-server"
_INSTALL_SECONDS = 600
_UPDATE = ("apt-get", "update", "-qq")
_INSTALL = ("apt-get", "install", "-y", "-qq", "redis-server")


def find_redis() -> Path:
    """Return `redis-server` from PATH. For root on Debian and Ubuntu one process installs it, while others wait.

    Raises:
        ProgramMissing: There is none, and it could not be installed.
    """
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with locked(Path(tempfile.gettempdir()) / "resequencer-apt.lock"):
            if shutil.which("redis-server") is None:
                _install()
        found = shutil.which("redis-server")
    if found is None:
        raise ProgramMissing("There is no redis-server on PATH", _REMEDY)
    return Path(found)


def _install() -> None:
    print("Installing redis-server", file=sys.stderr)  # noqa: T201 - It takes a while, and changes the machine.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (_UPDATE, _INSTALL):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_INSTALL_SECONDS, check=False)  # noqa: S603 - all ours.
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            raise ProgramMissing(f"There is no redis-server on PATH, and '{' '.join(command)}' failed: {words[0]}", _REMEDY)
