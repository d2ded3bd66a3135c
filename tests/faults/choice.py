"""How often each storage's service is struck, in `make faults` and in `make test`."""

from typing import Any

import pytest


def each_storage(*, short: int = 0, **times: int) -> list[Any]:
    """Parameters: storages by name, each with the number of strikes in `make faults`; `short` of them in `make test`."""
    return [pytest.param(storage, marks=pytest.mark.faults(all=most, short=short)) for storage, most in times.items()]
