"""The packages of the project, and the places inside `notification_service`, by a rule, so that no test needs a list."""

from pathlib import Path

from harness.processes.wheels import NOT_INSTALLED

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(sorted({each.parent.name for each in ROOT.glob("*/__init__.py")} - NOT_INSTALLED))
"""The import names of the service."""
CODE = (*PACKAGES, "servers")
"""`servers`, for trying and for tests, is not installed."""
SERVICE = "notification_service"
PLACES = tuple(sorted(each.parent.name for each in ROOT.glob(f"{SERVICE}/*/__init__.py")))
"""The folders of `notification_service`, each with a layer of its own."""


def place_of(path: str) -> str:
    """Return the part of a path that names its package, or its place inside `notification_service`."""
    return "/".join(path.split("/")[: 2 if path.startswith(f"{SERVICE}/") else 1])
