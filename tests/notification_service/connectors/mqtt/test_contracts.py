"""The contract of sinks, on real brokers."""

from collections.abc import Iterator, Sequence

import pytest
from harness.nightly import at_night

from guardian.ports import Channel
from notification_service.connectors.mqtt.sink import MqttSink
from servers.artemis import ArtemisServer
from servers.mosquitto import MosquittoServer
from tests.notification_service.connectors.mqtt.stage import Broker, Came, Topics
from tests.notification_service.connectors.region.sink_contract import SinkContract

pytestmark = pytest.mark.slow


class SinkHarness:
    """Subscribes before anything is sent: what has no subscriber is dropped."""

    fences = False

    def __init__(self, server: Broker, qos: int) -> None:
        self._topics = Topics.fresh(server)
        self._qos = qos
        channels = (Channel.NOTIFICATIONS, Channel.DEAD_LETTERS)
        self.subscribers = {each: self._topics.subscriber(each) for each in channels}

    def make(self) -> MqttSink:
        return self._topics.sink(qos=self._qos)

    def left(self, channel: Channel) -> Sequence[Came]:
        """Return all that came, once nothing more comes. Its order is that of the publications."""
        return self.subscribers[channel].wait_for(0)


def harness_on(server: Broker, qos: int) -> Iterator[SinkHarness]:
    made = SinkHarness(server, qos)
    yield made
    for each in made.subscribers.values():
        each.close()


class TestMqttSinkOnArtemis(SinkContract):
    @pytest.fixture(params=[1, *at_night("sinks", 2)])
    def harness(self, request: pytest.FixtureRequest, artemis: ArtemisServer) -> Iterator[SinkHarness]:
        yield from harness_on(artemis, request.param)


class TestMqttSinkOnMosquitto(SinkContract):
    @pytest.fixture(params=[2, *at_night("sinks", 1)])
    def harness(self, request: pytest.FixtureRequest, mosquitto: MosquittoServer) -> Iterator[SinkHarness]:
        yield from harness_on(mosquitto, request.param)
