"""Brings the jars of a server, or of what Spark reads with, from Maven Central, once per checkout and pom."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers.errors import JarsMissing, ProgramMissing
from servers.locked import locked

_CHECKOUT = Path(__file__).resolve().parents[2]
_HOME = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "resequencer")
CACHE = _CHECKOUT / ".servers" if os.access(_CHECKOUT, os.W_OK) else _HOME
"""A directory of jars per server, named after its pom's content: another version is another directory. In the home of whoever
runs what somebody else has installed.
"""

_FETCH_SECONDS = 1_200
_LINES_SHOWN = 5


def get_jars(name: str) -> Path:
    """The directory with all jars of `servers/poms/<name>`; fetched by Maven when it is not there yet.

    May be called by several processes at once: one fetches, the others wait.

    Raises:
        ProgramMissing: They have to be fetched, and there is no Maven.
        JarsMissing: Maven failed.
    """
    pom = Path(__file__).parents[1] / "poms" / name / "pom.xml"
    jars = CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not jars.is_dir():
        with locked(CACHE / f"{name}.lock"):
            if not jars.is_dir():
                _fetch(name, pom, jars)
    return jars


def _fetch(name: str, pom: Path, jars: Path) -> None:
    """Without the network if the local repository has them all; the directory appears whole or not at all."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ProgramMissing(
            f"The jars of {name} are fetched by Maven, and there is no mvn on PATH",
            "Install Maven 3.6 or newer. On Debian and Ubuntu: apt-get install maven",
        )
    print(f"Fetching the jars of {name} (once)", file=sys.stderr)  # noqa: T201 - it takes a while.
    draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        said = _copied(maven, pom, draft, "--offline")
        if said is not None:
            said = _copied(maven, pom, draft, "--batch-mode")
        if said is not None:
            raise JarsMissing(name, said)
        draft.rename(jars)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copied(maven: str, pom: Path, target: Path, mode: str) -> list[str] | None:
    """Maven's complaints, None when all went well."""
    command = [maven, mode, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}", "-Dstyle.color=never"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)  # noqa: S603 - all ours.
    except subprocess.TimeoutExpired:
        return [f"nothing: it was ended after {_FETCH_SECONDS} s"]
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[:_LINES_SHOWN] or [f"nothing: it ended with {done.returncode}"]
