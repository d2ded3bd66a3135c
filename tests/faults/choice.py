"""How often the service with each storage is struck, in `make faults` and in `make test`."""

from typing import Any

import pytest


def each_storage(**times: int | tuple[int, int]) -> list[Any]:
    """Return test parameters: storages by name, each with its strikes in `make faults`, and in `make test` if there are any."""
    return [_parameter(storage, *(given if isinstance(given, tuple) else (given, 0))) for storage, given in times.items()]


def _parameter(storage: str, most: int, short: int) -> Any:
    return pytest.param(storage, marks=pytest.mark.faults(all=most, short=short))
