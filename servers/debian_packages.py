"""Programs from packages of Debian: installed if root asks, or found."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from notification_service.jobs.jars.maven import locked
from servers.errors import ProgramMissing

_SECONDS = 600
_UPDATE = ("apt-get", "update", "-qq")
_INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")


def find_program(name: str, package: str, remedy: str, places: str = "", prepare: Callable[[], None] = lambda: None) -> Path:
    """Return the program from PATH, else the one of the highest version in `places`.

    For root on Debian and Ubuntu one process calls `prepare` and installs the package, while others wait.

    Args:
        places: A pattern of absolute directories, as `Path.glob` takes them; empty: only PATH counts.
        prepare: What the machine needs before the installation.

    Raises:
        ProgramMissing: There is none, and it could not be installed. The text ends with `remedy`.
    """
    found = _find(name, places)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with locked(Path(tempfile.gettempdir()) / "resequencer-apt.lock"):
            if _find(name, places) is None:
                prepare()
                _install(name, package, remedy)
        found = _find(name, places)
    if found is None:
        raise ProgramMissing(f"There is no {name} on PATH", remedy)
    return found


def _find(name: str, places: str) -> Path | None:
    if found := shutil.which(name):
        return Path(found)
    candidates = Path("/").glob(f"{places.removeprefix('/')}/{name}") if places else ()
    return max(candidates, key=_version, default=None)


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", str(path))]


def _install(name: str, package: str, remedy: str) -> None:
    print(f"Installing {package}", file=sys.stderr)  # noqa: T201 - It takes a while, and changes the machine.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (_UPDATE, (*_INSTALL, package)):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False)  # noqa: S603 - all ours.
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            raise ProgramMissing(f"There is no {name} on PATH, and '{' '.join(command)}' failed: {words[0]}", remedy)


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
