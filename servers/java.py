"""Java, and the jars and logs of servers that are written in it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from notification_service.jobs.jars import maven
from servers.errors import ProgramMissing, ServersError

OLDEST = 17
QUICK_JAVA = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options for a quick start and little memory; for throughput use the default compilers and more heap."""

_REMEDY = (
    f"Install a JDK {OLDEST} or newer, or set JAVA_HOME to one. On Debian and Ubuntu: apt-get install openjdk-17-jdk-headless"
)
_ANSWER_SECONDS = 60


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else that on PATH.

    Raises:
        ProgramMissing: There is none, or it is older than `OLDEST`.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise ProgramMissing(f"Kafka, Infinispan and Artemis need Java, and there is no java {where}", _REMEDY)
    version = _version(found)
    if version < OLDEST:
        raise ProgramMissing(
            f"Kafka, Infinispan and Artemis need Java {OLDEST} or newer, but {found} is {version or 'of unknown version'}",
            _REMEDY,
        )
    return Path(found)


def _version(java: str) -> int:
    """Return the major version; 0 if the program does not print one. `1.8.0` is 8."""
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)  # noqa: S603 - found by us.
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
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
