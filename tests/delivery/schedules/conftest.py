"""The stores of requests: the ledger on each database, and a topic of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.ledger_stage import LedgerStage
from harness.receivers import receiver

from tests.delivery.schedules.sinks import LedgerStore, Store, TopicStore

STORES = ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("postgresql", "topic"))]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "topic":
        yield TopicStore(request.getfixturevalue("topics"))
        return
    url = f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("ledger_database")
    stage = LedgerStage(url, receiver())
    yield LedgerStore(stage)
    stage.close()
