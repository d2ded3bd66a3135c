"""The programs of servers: packages of Debian, and Java with its jars and logs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from notification_service.jobs import maven
from notification_service.jobs.maven import locked
from servers.server import ProgramMissing, ServersError

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


OLDEST_JAVA = 17
QUICK_JAVA = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a quick start and little memory; for throughput use the default compilers and more heap."""

_JAVA_REMEDY = (
    f"Install a JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to one. "
    "On Debian and Ubuntu: apt-get install openjdk-17-jdk-headless"
)
_ANSWER_SECONDS = 60


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else that on PATH.

    Raises:
        ProgramMissing: There is none, or it is older than `OLDEST_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise ProgramMissing(f"Kafka, Infinispan and Artemis need Java, and there is no java {where}", _JAVA_REMEDY)
    version = _java_version(found)
    if version < OLDEST_JAVA:
        raise ProgramMissing(
            f"Kafka, Infinispan and Artemis need Java {OLDEST_JAVA} or newer, but {found} is {version or 'of unknown version'}",
            _JAVA_REMEDY,
        )
    return Path(found)


def _java_version(java: str) -> int:
    """Return the major version; 0 if the program does not print one. `1.8.0` is 8."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)  # noqa: S603 - found by us.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0


_POMS = Path(__file__).parent / "poms"


def get_jars(name: str) -> Path:
    """Return the directory with all jars of `servers/poms/<name>`; Maven fetches them if they are missing.

    Raises:
        ServersError: The jars are missing, and Maven is not installed or failed.
    """
    try:
        return maven.get_jars(_POMS / name / "pom.xml")
    except maven.JarsMissing as error:
        raise ServersError(str(error)) from error


_CONFIGURATION = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="OUTPUT" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{1} %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="INFO">
      <AppenderRef ref="OUTPUT"/>
    </Root>
  </Loggers>
</Configuration>
"""


def write_log_configuration(directory: Path) -> Path:
    path = directory / "log4j2.xml"
    path.write_text(_CONFIGURATION)
    return path
