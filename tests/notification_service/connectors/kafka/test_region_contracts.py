"""The contracts of sources and sinks (tests/notification_service/connectors/region), on a real broker."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from guardian.ports import Channel
from notification_service.connectors.kafka.sink import KafkaSink, KafkaSource
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.region_stage import RegionStage
from tests.notification_service.connectors.kafka.stage import FixedClock
from tests.notification_service.connectors.region.sink_contract import SinkContract
from tests.notification_service.connectors.region.source_contract import SourceContract

pytestmark = pytest.mark.slow


class SourceHarness:
    def __init__(self, stage: RegionStage, partitions: tuple[int, ...] | None) -> None:
        self._stage = stage
        self._fixed = partitions
        self.partitions = stage.partitions

    def make(self) -> KafkaSource:
        return KafkaSource(replace(self._stage.source_settings("slot"), partitions=self._fixed), FixedClock())

    def send(self, partition: Partition, *values: bytes) -> None:
        self._stage.send(*values, partition=partition.number)


class SinkHarness:
    fences = True

    def __init__(self, stage: RegionStage) -> None:
        self._stage = stage

    def make(self) -> KafkaSink:
        return KafkaSink(self._stage.sink_settings(), FixedClock())

    def left(self, channel: Channel) -> Sequence[Any]:
        return self._stage.outputs(channel)


class TestKafkaSource(SourceContract):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Iterator[SourceHarness]:
        stage = RegionStage(kafka)
        yield SourceHarness(stage, None)
        stage.close()


@pytest.mark.nightly("sources")
class TestKafkaSourceOfFixedPartitions(SourceContract):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Iterator[SourceHarness]:
        stage = RegionStage(kafka)
        yield SourceHarness(stage, (0, 1))
        stage.close()


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Iterator[SinkHarness]:
        stage = RegionStage(kafka)
        yield SinkHarness(stage)
        stage.close()
