"""Finds Prometheus and its `promtool`; on Debian and Ubuntu the package is unpacked and not installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from notification_service.jobs.jars.maven import CACHE, locked
from servers.errors import ProgramMissing

_REMEDY = (
    "Install Prometheus, so that prometheus and promtool are on PATH. "
    "On Debian and Ubuntu: apt-get install --no-install-recommends prometheus"
)
_SECONDS = 600
_UPDATE = ("apt-get", "update", "-qq")
_DOWNLOAD = ("apt-get", "download", "-qq", "prometheus")


def find_promtool() -> Path:
    """Return `promtool`, which checks metrics and rules; as `find_prometheus`."""
    return _find("promtool")


def find_prometheus() -> Path:
    """Return `prometheus` from PATH, else from the package, which one process downloads and unpacks while others wait.

    An installation of the package would start a server.

    Raises:
        ProgramMissing: There is none, and it could not be unpacked.
    """
    return _find("prometheus")


def _find(name: str) -> Path:
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    directory = CACHE / "prometheus"
    unpacked = directory / "usr" / "bin" / name
    with locked(CACHE / "prometheus.lock"):
        if not unpacked.exists():
            _unpack(directory)
    return unpacked


def _unpack(directory: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise ProgramMissing("There is no Prometheus on PATH", _REMEDY)
    print("Unpacking Prometheus", file=sys.stderr)  # noqa: T201 - It takes a while.
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        _run(_UPDATE, directory)
    _run(_DOWNLOAD, directory)
    package = next(directory.glob("prometheus_*.deb"))
    _run(("dpkg-deb", "-x", str(package), str(directory)), directory)
    package.unlink()


def _run(command: tuple[str, ...], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603 - all ours.
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise ProgramMissing(f"There is no Prometheus on PATH, and '{' '.join(command)}' failed: {words[0]}", _REMEDY)
