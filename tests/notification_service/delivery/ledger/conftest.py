"""A ledger on each database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.ledger_stage import LedgerStage
from harness.receivers import receiver

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    return f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("ledger_database")


@pytest.fixture(params=DATABASES)
def ready(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that makes its tables at its first use, or has them."""
    return f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("migrated_database")


@pytest.fixture
def stage(ready: str) -> Iterator[Callable[..., LedgerStage]]:
    """Make a stage; the arguments are keys of the receiver in HOCON."""
    made: list[LedgerStage] = []

    def make(*keys: str) -> LedgerStage:
        made.append(LedgerStage(ready, receiver(*keys)))
        return made[-1]

    yield make
    for each in made:
        each.close()
