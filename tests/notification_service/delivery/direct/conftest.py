"""Direct delivery on the broker of the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from harness.scripted_receiver import ScriptedReceiver, scripted_receiver

if TYPE_CHECKING:  # Its client takes long to import, which the tests without a broker need not wait for.
    from servers.kafka import KafkaServer
    from tests.notification_service.delivery.direct.stage import DirectStage


@pytest.fixture
def receiving() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as receiver:
        yield receiver


@pytest.fixture
def direct(kafka: KafkaServer, receiving: ScriptedReceiver) -> Iterator[Callable[..., DirectStage]]:
    from tests.notification_service.delivery.direct.stage import DirectStage

    made: list[DirectStage] = []

    def make(*keys: str, partitions: int = 2) -> DirectStage:
        made.append(DirectStage(kafka, receiving.url, *keys, partitions=partitions))
        return made[-1]

    yield make
    for each in made:
        each.close()
