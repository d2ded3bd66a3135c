"""The stores of requests: the ledger on each database, and a topic of a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from harness.ledger_stage import LedgerStage
from harness.receivers import receiver

from notification_service.delivery.settings import Receiver
from tests.notification_service.delivery.schedules.sinks import LedgerStore, MemoryStore, Store, TopicStore

if TYPE_CHECKING:  # Its client takes long to import, which the tests without a broker need not wait for.
    from servers.kafka import KafkaServer
    from tests.notification_service.delivery.direct.stage import DirectStage

STORES = ["sqlite", "memory", *(pytest.param(name, marks=pytest.mark.slow) for name in ("postgresql", "topic"))]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "topic":
        yield TopicStore(request.getfixturevalue("topics"))
        return
    if request.param == "memory":
        yield MemoryStore()
        return
    url = f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("migrated_database")
    stage = LedgerStage(url, receiver())
    yield LedgerStore(stage)
    stage.close()


@pytest.fixture
def direct_stage(kafka: KafkaServer) -> Iterator[Callable[..., DirectStage]]:
    """Make a receiver that reads a topic, with the given settings and URL."""
    from tests.notification_service.delivery.direct.stage import DirectStage

    made: list[DirectStage] = []

    def make(url: str, settings: Receiver) -> DirectStage:
        made.append(DirectStage(kafka, url))
        made[-1].use(msgspec.structs.replace(settings, url=url))
        return made[-1]

    yield make
    for each in made:
        each.close()
