"""The jars of a server, which Maven fetches once."""

from pathlib import Path

from notification_service.jobs.jars import maven
from servers.errors import ServersError

_POMS = Path(__file__).parents[1] / "poms"


def get_jars(name: str) -> Path:
    """Return the directory with all jars of `servers/poms/<name>`; Maven fetches them if they are missing.

    Raises:
        ServersError: The jars are missing, and Maven is not installed or failed.
    """
    try:
        return maven.get_jars(_POMS / name / "pom.xml")
    except maven.JarsMissing as error:
        raise ServersError(str(error)) from error
