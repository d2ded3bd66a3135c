"""The contract suite of transports (tests/notification_service/connectors/contract.py) on a real broker."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from guardian.ports import Channel
from notification_service.connectors.kafka.sink import KafkaTransport
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.contract import TransportContract
from tests.notification_service.connectors.kafka.stage import FixedClock, KafkaStage

pytestmark = pytest.mark.slow


class KafkaHarness:
    def __init__(self, stage: KafkaStage) -> None:
        self._stage = stage
        self.partitions = stage.partitions

    def make(self) -> KafkaTransport:
        settings = self._stage.settings("slot")
        return KafkaTransport(replace(settings, undecided_wait_ms=60_000), FixedClock())

    def send(self, partition: Partition, *values: bytes) -> None:
        self._stage.send(*values, partition=partition.number)

    def left(self, channel: Channel) -> Sequence[Any]:
        return self._stage.outputs(channel)


class TestKafkaContract(TransportContract):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Iterator[KafkaHarness]:
        stage = KafkaStage(kafka, has_facts=True)
        yield KafkaHarness(stage)
        stage.close()
