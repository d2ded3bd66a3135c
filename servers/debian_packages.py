"""Programs of Debian's packages: found on PATH, and installed where that is possible."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers.errors import ProgramMissing
from servers.locked import locked

_SECONDS = 600
_UPDATE = ("apt-get", "update", "-qq")
_INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")


def find_program(name: str, package: str, remedy: str) -> Path:
    """Return the program from PATH. For root on Debian and Ubuntu one process installs its package, while others wait.

    Raises:
        ProgramMissing: There is none, and it could not be installed. The text ends with `remedy`.
    """
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with locked(Path(tempfile.gettempdir()) / "resequencer-apt.lock"):
            if shutil.which(name) is None:
                _install(name, package, remedy)
        found = shutil.which(name)
    if found is None:
        raise ProgramMissing(f"There is no {name} on PATH", remedy)
    return Path(found)


def _install(name: str, package: str, remedy: str) -> None:
    print(f"Installing {package}", file=sys.stderr)  # noqa: T201 - It takes a while, and changes the machine.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (_UPDATE, (*_INSTALL, package)):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False)  # noqa: S603 - all ours.
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            raise ProgramMissing(f"There is no {name} on PATH, and '{' '.join(command)}' failed: {words[0]}", remedy)
