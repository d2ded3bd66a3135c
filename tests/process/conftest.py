"""Real services that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from operated_service import OperatedService


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[..., OperatedService]]:
    """Makes services; all but `directory` go to the `OperatedService`, which is not started yet."""
    made: list[OperatedService] = []

    def make(*overrides: str, directory: Path = tmp_path, config: str | None = None) -> OperatedService:
        made.append(OperatedService(directory, *overrides, config=config))
        return made[-1]

    yield make
    for each in made:
        each.clear_away()


@pytest.fixture
def service(new_service: Callable[..., OperatedService]) -> OperatedService:
    """What runs when nothing is configured: SEQUENCE, files, the embedded storage."""
    return new_service()
