"""Guardians that tests call by hand."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.actors.asking import Asked


@pytest.fixture
def new_asked() -> Iterator[Callable[..., Asked]]:
    made: list[Asked] = []

    def make(*arguments: Any, **named: Any) -> Asked:
        made.append(Asked(*arguments, **named))
        return made[-1]

    yield make
    for each in made:
        each.actors.close()


@pytest.fixture
def asked(new_asked: Callable[..., Asked]) -> Asked:
    """A guardian with strategy SEQUENCE and the default time-outs."""
    return new_asked()
