"""What the tests on the broker of the whole run share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # Its client takes long to import, which the tests without a broker need not wait for.
    from servers.kafka import KafkaServer
    from tests.notification_service.connectors.kafka.stage import KafkaStage


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    """Topics and a group of its own, with two partitions."""
    from tests.notification_service.connectors.kafka.stage import KafkaStage

    stage = KafkaStage(kafka)
    yield stage
    stage.close()
