"""A ledger on each database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.ledger_stage import LedgerStage
from harness.receivers import receiver


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db"
    else:
        yield request.getfixturevalue("ledger_database")


@pytest.fixture
def stage(url: str) -> Iterator[Callable[..., LedgerStage]]:
    """Make a stage; the arguments are keys of the receiver in HOCON."""
    made: list[LedgerStage] = []

    def make(*keys: str) -> LedgerStage:
        made.append(LedgerStage(url, receiver(*keys)))
        return made[-1]

    yield make
    for each in made:
        each.close()
