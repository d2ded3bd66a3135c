"""The contracts of sources and sinks, on a real broker."""

from collections.abc import Sequence

import pytest

from guardian.ports import Channel
from notification_service.connectors.jms.sink import JmsSink, XmsSink
from notification_service.connectors.jms.source import JmsSource
from resequencer.record import Partition, Record
from servers.artemis import ArtemisServer
from tests.notification_service.connectors.jms.stage import Queues
from tests.notification_service.connectors.region.sink_contract import SinkContract
from tests.notification_service.connectors.region.source_contract import SourceContract

pytestmark = pytest.mark.slow


class JmsHarness:
    fences = True

    def __init__(self, server: ArtemisServer) -> None:
        self._queues = Queues.fresh(server)
        self.partitions: Sequence[Partition] = self._queues.partitions()

    def send(self, partition: Partition, *values: bytes) -> None:
        self._queues.send_to(partition.number, *values)

    def left(self, channel: Channel) -> list[Record]:
        return self._queues.left(channel)


class SourceHarness(JmsHarness):
    def make(self) -> JmsSource:
        return self._queues.source()


class SinkHarness(JmsHarness):
    def make(self) -> JmsSink:
        return self._queues.sink()


class XmsSinkHarness(JmsHarness):
    fences = False

    def make(self) -> XmsSink:
        return self._queues.xms_sink()


class TestJmsSource(SourceContract):
    @pytest.fixture
    def harness(self, artemis: ArtemisServer) -> SourceHarness:
        return SourceHarness(artemis)


class TestJmsSink(SinkContract):
    @pytest.fixture
    def harness(self, artemis: ArtemisServer) -> SinkHarness:
        return SinkHarness(artemis)


class TestXmsSink(SinkContract):
    @pytest.fixture
    def harness(self, artemis: ArtemisServer) -> XmsSinkHarness:
        return XmsSinkHarness(artemis)
