"""Imports what users name in the configuration as `package.module:name`."""

from importlib import import_module
from typing import Any

_API, _LOOKUPS = "notification_service.api", "notification_service.jobs.lookups.spec"
_MOVED = (
    *("aggregation", "bridge", "connectors", "console", "daemon", "delivery", "domain", "enrichment", "pipeline", "simulator"),
    *("status", "resequencer.handlers", "storage.port"),
)
"""The packages and modules from which users imported before there was one place for it."""


def import_named(place: str) -> Any:
    """Return what `package.module:name` names; the name may have dots.

    Raises:
        ImportError: Its module imports from a place of before; the text names the new one.
        BaseException: Whatever the module raises when it is imported.
    """
    module, _, name = place.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        old = error.name or ""
        if not any(f"{old}.".startswith(f"{each}.") for each in _MOVED):
            raise
        place = _LOOKUPS if old.startswith("pipeline") else _API
        raise ImportError(f"there is no {old} any more: import from {place} instead, see docs/extending.md", name=old) from error
    for part in name.split("."):
        found = getattr(found, part)
    return found
