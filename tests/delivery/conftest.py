"""What the tests of delivery on the broker of the whole run share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

if TYPE_CHECKING:  # Its client takes long to import, which the tests without a broker need not wait for.
    from servers.kafka.server import KafkaServer
    from servers.postgresql.server import PostgresqlServer
    from tests.connectors.kafka.stage import KafkaStage


@pytest.fixture
def topics(kafka: KafkaServer) -> Iterator[KafkaStage]:
    """Topics of its own, with two partitions."""
    from tests.connectors.kafka.stage import KafkaStage

    stage = KafkaStage(kafka)
    yield stage
    stage.close()


@pytest.fixture
def ledger_database(
    request: pytest.FixtureRequest, postgresql: PostgresqlServer, fresh_name: Callable[[str], str]
) -> Iterator[str]:
    """The URL of an empty database; the parameter is what else is said when it is created."""
    name = fresh_name("ledger").lower().replace("-", "_")
    more = getattr(request, "param", "")
    administration = create_engine(postgresql.url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with administration.connect() as connection:
        connection.execute(text(f'create database "{name}" {more}'))
    yield postgresql.url.rpartition("/")[0] + f"/{name}"
    with administration.connect() as connection:
        connection.execute(text(f'drop database "{name}" with (force)'))
    administration.dispose()
