"""A ledger on each database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.ledger_stage import LedgerStage
from harness.receivers import receiver
from sqlalchemy import create_engine, text


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    server, name = (
        request.getfixturevalue("postgresql"),
        request.getfixturevalue("fresh_name")("ledger").lower().replace("-", "_"),
    )
    administration = create_engine(server.url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with administration.connect() as connection:
        connection.execute(text(f'create database "{name}"'))
    yield server.url.rpartition("/")[0] + f"/{name}"
    with administration.connect() as connection:
        connection.execute(text(f'drop database "{name}" with (force)'))
    administration.dispose()


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
