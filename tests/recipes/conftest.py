"""Real services that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.processes.operated_service import OperatedService


@pytest.fixture
def new_service() -> Iterator[Callable[..., OperatedService]]:
    made: list[OperatedService] = []

    def make(directory: Path, *overrides: str, **what: Any) -> OperatedService:
        made.append(OperatedService(directory, *overrides, **what))
        return made[-1]

    yield make
    for each in made:
        each.clear_away()
