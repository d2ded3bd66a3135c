"""The contract of sinks, on real brokers."""

from collections.abc import Iterator, Sequence

import pytest

from connectors.mqtt.sink import MqttSink
from connectors.port import Channel
from servers.artemis.server import ArtemisServer
from servers.mosquitto.server import MosquittoServer
from tests.connectors.mqtt.stage import Broker, Came, Topics
from tests.connectors.region.sink_contract import SinkContract

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


@pytest.fixture(params=[1, 2])
def harness(request: pytest.FixtureRequest, server: Broker) -> Iterator[SinkHarness]:
    made = SinkHarness(server, request.param)
    yield made
    for each in made.subscribers.values():
        each.close()


class TestMqttSinkOnArtemis(SinkContract):
    @pytest.fixture
    def server(self, artemis: ArtemisServer) -> ArtemisServer:
        return artemis


class TestMqttSinkOnMosquitto(SinkContract):
    @pytest.fixture
    def server(self, mosquitto: MosquittoServer) -> MosquittoServer:
        return mosquitto
