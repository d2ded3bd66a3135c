"""Fetches the jars of a server, or of Spark's connectors, from Maven Central, once per checkout and pom."""

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
"""One directory of jars per server, named after a hash of its pom, so that another version gets another directory.

It lies in the checkout, or in the user's cache directory if the checkout is not writable.
"""

_FETCH_SECONDS = 1_200
_LINES_SHOWN = 5


def get_jars(name: str) -> Path:
    """Return the directory with all jars of `servers/poms/<name>`; Maven fetches them if they are missing.

    Several processes may call this at once: one fetches, the others wait.

    Raises:
        ProgramMissing: The jars are missing, and Maven is not installed.
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
    """Fetch the jars, offline if the local repository has them all. The directory appears complete or not at all."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ProgramMissing(
            f"The jars of {name} are fetched by Maven, and there is no mvn on PATH",
            "Install Maven 3.6 or newer. On Debian and Ubuntu: apt-get install maven",
        )
    print(f"Fetching the jars of {name} (once)", file=sys.stderr)  # noqa: T201 - It takes a while.
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
    """Return the first lines of Maven's output if it failed; None if it succeeded."""
    command = [maven, mode, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}", "-Dstyle.color=never"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)  # noqa: S603 - all ours.
    except subprocess.TimeoutExpired:
        return [f"no output: it was ended after {_FETCH_SECONDS} s"]
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[:_LINES_SHOWN] or [f"no output: it ended with exit code {done.returncode}"]
