"""Fetches jars from Maven Central, once per pom: those of Spark's connector for Kafka, and any other's."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resequencer.errors import ConfigurationError, ResequencerError

_CHECKOUT = Path(__file__).resolve().parents[2]
_HOME = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "resequencer")
CACHE = _CHECKOUT / ".servers" if os.access(_CHECKOUT, os.W_OK) else _HOME
"""One directory of jars for each pom, named after a hash of it, so that another version gets another directory.

It lies in the checkout, or in the user's cache directory if the checkout is not writable.
"""

_FETCH_SECONDS = 1_200
_LINES_SHOWN = 5


class JarsMissing(ResequencerError):
    """There is no Maven, or it could not fetch the jars. The text says what to do."""


def with_kafka(options: dict[str, str]) -> dict[str, str]:
    """Return the options of a Spark session with the jars of its connector for Kafka. Maven fetches them at the first use.

    Raises:
        ConfigurationError: The jars are missing and cannot be fetched.
    """
    try:
        found = sorted(map(str, get_jars(Path(__file__).parent / "spark-kafka" / "pom.xml").glob("*.jar")))
    except JarsMissing as error:
        raise ConfigurationError("spark-kafka", str(error)) from error
    given = [each for each in options.get("spark.jars", "").split(",") if each]
    return options | {"spark.jars": ",".join([*given, *found])}


def get_jars(pom: Path) -> Path:
    """Return the directory with all jars of a `<name>/pom.xml`; Maven fetches them if they are missing.

    Several processes may call this at once: one fetches, the others wait.

    Raises:
        JarsMissing: The jars are missing, and Maven is not installed or failed.
    """
    name = pom.parent.name
    jars = CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not jars.is_dir():
        with locked(CACHE / f"{name}.lock"):
            if not jars.is_dir():
                _fetch(name, pom, jars)
    return jars


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process is inside. The file and its directory are created if missing, and are not removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fetch(name: str, pom: Path, jars: Path) -> None:
    """Fetch the jars, offline if the local repository has them all. The directory appears complete or not at all."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing(
            f"The jars of {name} are fetched by Maven, and there is no mvn on PATH. "
            "Install Maven 3.6 or newer. On Debian and Ubuntu: apt-get install maven"
        )
    print(f"Fetching the jars of {name} (once)", file=sys.stderr)  # noqa: T201 - It takes a while.
    draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        lines = _copied(maven, pom, draft, "--offline")
        if lines is not None:
            lines = _copied(maven, pom, draft, "--batch-mode")
        if lines is not None:
            raise JarsMissing(_failure(name, lines))
        draft.rename(jars)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _failure(name: str, lines: Sequence[str]) -> str:
    reason = "\n  ".join(lines)
    return (
        f"Maven could not fetch the jars of {name}. Maven Central, or a mirror named in ~/.m2/settings.xml, must be "
        f"reachable once; then the jars are kept. Maven's output:\n  {reason}"
    )


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
