"""What the tests of delivery on the broker of the whole run share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, create_engine, text

from notification_service.jobs.maven import locked

if TYPE_CHECKING:  # Its client takes long to import, which the tests without a broker need not wait for.
    from servers.kafka import KafkaServer
    from servers.postgresql import PostgresqlServer
    from tests.notification_service.connectors.kafka.stage import KafkaStage


@pytest.fixture
def topics(kafka: KafkaServer) -> Iterator[KafkaStage]:
    """Topics of its own, with two partitions."""
    from tests.notification_service.connectors.kafka.stage import KafkaStage

    stage = KafkaStage(kafka)
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def migrated(postgresql: PostgresqlServer, server_directory: Path) -> str:
    """The name of a database with the tables of a ledger, and without a connection: others are made as its copies."""
    with locked(server_directory / "migrated.lock"), administered(postgresql) as connection:
        if not connection.scalar(text("select 1 from pg_database where datname = 'migrated'")):
            connection.execute(text("create database migrated"))
            from harness.ledger_stage import open_database

            with closing(open_database(database_url(postgresql, "migrated"))) as database, database.write():
                pass
    return "migrated"


@pytest.fixture
def ledger_database(
    request: pytest.FixtureRequest, postgresql: PostgresqlServer, fresh_name: Callable[[str], str]
) -> Iterator[str]:
    """The URL of an empty database; the parameter is what is added when it is created."""
    yield from made_database(postgresql, fresh_name, getattr(request, "param", ""))


@pytest.fixture
def migrated_database(postgresql: PostgresqlServer, migrated: str, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """The URL of a database with the tables of a ledger."""
    yield from made_database(postgresql, fresh_name, f"template {migrated}")


def made_database(postgresql: PostgresqlServer, fresh_name: Callable[[str], str], more: str) -> Iterator[str]:
    name = fresh_name("ledger").lower().replace("-", "_")
    with administered(postgresql) as connection:
        connection.execute(text(f'create database "{name}" {more}'))
        yield database_url(postgresql, name)
        connection.execute(text(f'drop database "{name}" with (force)'))


@contextmanager
def administered(postgresql: PostgresqlServer) -> Iterator[Connection]:
    engine = create_engine(postgresql.url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def database_url(postgresql: PostgresqlServer, name: str) -> str:
    return f"{postgresql.url.rpartition('/')[0]}/{name}"
