"""How often the service with each storage is struck: in `make faults`, in `make nightly`, and in `make test`."""

from typing import Any

import pytest


def each_storage(**times: int | tuple[int, ...]) -> list[Any]:
    """Return test parameters: storages by name, each with its strikes in `make faults`, `make nightly` and `make test`."""
    return [_parameter(storage, *(given if isinstance(given, tuple) else (given,))) for storage, given in times.items()]


def _parameter(storage: str, most: int, night: int = 0, short: int = 0) -> Any:
    return pytest.param(storage, marks=pytest.mark.faults(all=most, night=night, short=short))
