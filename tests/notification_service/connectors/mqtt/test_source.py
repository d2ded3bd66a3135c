"""The bridge's source of MQTT on real brokers: what is not acknowledged comes again, in order, and the queue is bounded."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.nightly import at_night
from harness.waiting import wait_until

from guardian.ports import TransportUnavailable, TransportWithheld
from notification_service.connectors.line_format import Line
from notification_service.connectors.mqtt.messages import Outgoing, outgoing
from notification_service.connectors.mqtt.preflight import preflight_source
from notification_service.connectors.mqtt.settings import BrokerSettings, MqttSourceSettings
from notification_service.connectors.mqtt.source import MqttSource
from notification_service.connectors.optional_clients import connect_mqtt
from resequencer.errors import ConfigurationError
from servers.artemis import ArtemisServer, ArtemisSettings
from servers.mosquitto import MosquittoServer, MosquittoSettings
from tests.notification_service.connectors.mqtt.stage import PATIENT_MS

pytestmark = pytest.mark.slow

Broker = ArtemisServer | MosquittoServer


class Stage:
    """A session of the test's own, and what publishes to it one by one: a broker may mix up what is under way together."""

    def __init__(self, server: Broker, name: str) -> None:
        self.server, self.name = server, name
        self._opened: list[Any] = []

    def settings(self, **given: Any) -> MqttSourceSettings:
        patient = {"heartbeat_ms": PATIENT_MS, "call_timeout_ms": PATIENT_MS}
        names = {"client_id": self.name, "topics": (f"{self.name}/#",)}
        return MqttSourceSettings(**{"url": self.server.mqtt_url, **patient, **names, **given})

    def source(self, **given: Any) -> MqttSource:
        self._opened.append(MqttSource(self.settings(**given)))
        return self._opened[-1]

    def publish(self, *values: bytes, key: bytes | None = None, headers: Any = (), qos: int = 1) -> None:
        connection = connect_mqtt(BrokerSettings(self.server.mqtt_url, call_timeout_ms=PATIENT_MS))
        for value in values:
            connection.publish(outgoing(f"{self.name}/a", key, headers, value), qos)
            connection.next_confirmation()
        connection.close()

    def close(self) -> None:
        for each in self._opened:
            each.close()


@pytest.fixture(params=["artemis", *at_night("bridge", "mosquitto")])
def stage(request: pytest.FixtureRequest, fresh_name: Callable[[str], str]) -> Iterator[Stage]:
    made = Stage(request.getfixturevalue(request.param), fresh_name("bridge"))
    yield made
    made.close()


def test_payload_correlation_data_and_user_properties_are_value_key_and_headers(stage: Stage) -> None:
    source = stage.source()
    headers = (("schema-version", b"2"), ("trace", "ä".encode()))
    stage.publish(b"\xff\x00", key=b"\xfekey", headers=headers)
    stage.publish(b"{}")
    assert take(source, 2) == [Line(b"\xff\x00", b"\xfekey", headers), Line(b"{}", None, ())]


def test_what_was_not_acknowledged_comes_again_in_order(stage: Stage) -> None:
    source = stage.source()
    stage.publish(*numbers(0, 10))
    assert values(take(source, 10)) == numbers(0, 10)
    source.acknowledge()
    stage.publish(*numbers(10, 20))
    assert values(take(source, 10)) == numbers(10, 20)
    source.close()
    again = stage.source()
    stage.publish(*numbers(20, 25))
    assert values(take(again, 15)) == numbers(10, 25)


@pytest.mark.parametrize("size", [1, 20])
def test_the_broker_keeps_what_comes_while_the_bridge_is_away(stage: Stage, size: int) -> None:
    """Artemis mixes up what is under way together: with it, the order is kept by a queue of one message alone."""
    stage.source().close()
    stage.publish(*numbers(0, 200))
    source = stage.source(queue_size=size)
    found: list[bytes] = []
    while len(found) < 200:
        found += values(source.take(5_000))
        source.acknowledge()
    assert sorted(found) == sorted(numbers(0, 200))
    if size == 1 or isinstance(stage.server, MosquittoServer):
        assert found == numbers(0, 200)


@pytest.mark.parametrize("size", [1, 7])
def test_no_more_is_taken_than_the_queue_has_room_for(stage: Stage, size: int) -> None:
    source = stage.source(queue_size=size)
    stage.publish(*numbers(0, 60))
    found: list[bytes] = []
    while len(found) < 60:
        # What the broker sends beyond that is not taken either.
        taken = values(wait_until(lambda: source.take(100), "a message")) + values(source.take(50))
        assert len(taken) <= size
        found += taken
        source.acknowledge()
    assert sorted(found) == sorted(numbers(0, 60))


def test_topic_and_properties_count_among_the_bytes_that_are_taken(
    mosquitto: MosquittoServer, fresh_name: Callable[[str], str]
) -> None:
    """40 messages of 2 MB without a payload: 64 MiB of them are taken, and properties take twice their size in memory.

    Artemis takes no such large properties.
    """
    stage = Stage(mosquitto, fresh_name("bridge"))
    source = stage.source()
    properties = tuple((f"name-{number}", "x" * 65_000) for number in range(30))
    connection = connect_mqtt(BrokerSettings(stage.server.mqtt_url, call_timeout_ms=PATIENT_MS))
    for _ in range(40):
        connection.publish(Outgoing(f"{stage.name}/a", b"", None, properties), 1)
        connection.next_confirmation()
    connection.close()
    found: list[Line] = []
    while len(found) < 40:
        taken = wait_until(lambda: source.take(100), "a message") + source.take(200)
        assert len(taken) <= 17
        found += taken
        source.acknowledge()
    assert {len(each.headers) for each in found} == {30}
    stage.close()


def test_a_session_with_more_than_there_is_room_for_is_taken_up(
    mosquitto: MosquittoServer, fresh_name: Callable[[str], str]
) -> None:
    """The broker answers the subscription behind what it had kept: a wait for the answer before the first take would not end."""
    stage = Stage(mosquitto, fresh_name("bridge"))
    stage.source().close()
    stage.publish(*[b"x" * (8 << 20) for _ in range(15)])
    source, came = stage.source(call_timeout_ms=20_000), 0
    while came < 15:
        came += len(wait_until(lambda: source.take(100), "a message"))
        source.acknowledge()
    stage.close()


def test_a_message_larger_than_all_that_may_be_taken_comes_alone(stage: Stage) -> None:
    source = stage.source()
    stage.publish(b"before", b"x" * (65 << 20), b"behind")
    found: list[int] = []

    def come() -> bool:
        found.extend(len(each.value) for each in source.take(100))
        source.acknowledge()
        return len(found) == 3

    wait_until(come, "all three")
    assert found == [6, 65 << 20, 6]


def test_a_new_session_is_told_of_and_one_that_is_taken_up_is_not(stage: Stage) -> None:
    source = stage.source()
    assert "had no session for client id" in source.notes[0]
    source.close()
    assert stage.source().notes == ()


def test_a_retained_message_comes_once_and_not_with_each_connection(stage: Stage) -> None:
    connection = connect_mqtt(BrokerSettings(stage.server.mqtt_url, call_timeout_ms=PATIENT_MS))
    connection._client.publish(f"{stage.name}/kept", b"retained", 1, retain=True).wait_for_publish(PATIENT_MS / 1_000)
    connection.close()
    source = stage.source()
    assert values(take(source, 1)) == [b"retained"]
    source.acknowledge()
    source.close()

    def is_left_out() -> bool:
        """An acknowledgement just before the end of a connection may be lost, and the message comes once more."""
        again, taken = stage.source(), list[bytes]()
        stage.publish(b"behind it")
        wait_until(lambda: taken.extend(values(again.take(100))) or b"behind it" in taken, "the message behind it")
        again.acknowledge()
        again.close()
        return b"retained" not in taken

    assert any(is_left_out() for _ in range(3))


@pytest.mark.parametrize("text", ["\ufeff", "a\ufeffb"])
def test_a_message_that_the_client_would_not_read_by_itself_comes_as_any_other(stage: Stage, text: str) -> None:
    """By itself the client would close the connection at each delivery, and nothing behind the message would ever come."""
    source = stage.source()
    connection = connect_mqtt(BrokerSettings(stage.server.mqtt_url, call_timeout_ms=PATIENT_MS))
    connection.publish(Outgoing(f"{stage.name}/a", b"1", None, (("name", text),)), 1)
    connection.next_confirmation()
    connection.close()
    stage.publish(b"2")
    assert take(source, 2) == [Line(b"1", None, (("name", text.encode()),)), Line(b"2")]


def test_a_thread_of_the_client_that_dies_is_a_loss(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stage.source()
    stage.publish(b"1")
    assert values(take(source, 1)) == [b"1"]
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    monkeypatch.setattr(source._connection._client, "_handle_publish", lambda: 1 // 0)
    stage.publish(b"2")
    with pytest.raises(TransportUnavailable, match="the thread of the client has ended"):
        wait_until(lambda: source.take(100), "the loss is noticed")
    source.close()
    assert values(take(stage.source(), 2)) == [b"1", b"2"]


def test_of_two_bridges_with_one_client_id_the_first_does_not_take_the_session_back(stage: Stage) -> None:
    first = stage.source()
    second = stage.source()
    # mosquitto closes the connection and does not say why: the bridge stands back for longer each time then.
    expected = ConfigurationError if isinstance(stage.server, ArtemisServer) else TransportUnavailable
    with pytest.raises(expected, match=r"another bridge runs with client id|the connection is lost"):
        wait_until(lambda: first.take(100), "the first one is disconnected")
    stage.publish(b"1")
    assert values(take(second, 1)) == [b"1"]


def test_a_broker_that_is_killed_is_noticed_and_delivers_again(struck_server: Callable[..., Any]) -> None:
    stage = Stage(struck_server(ArtemisServer), "killed")
    source = stage.source()
    stage.publish(*numbers(0, 5))
    assert values(take(source, 5)) == numbers(0, 5)
    stage.server.kill()
    with pytest.raises(TransportUnavailable):
        wait_until(lambda: source.take(100), "the loss is noticed")
    with pytest.raises(TransportUnavailable):
        source.acknowledge()
    with pytest.raises(TransportUnavailable):
        stage.source()
    stage.server.start()
    assert values(take(stage.source(), 5)) == numbers(0, 5)
    stage.close()


def test_what_mosquitto_loses_at_a_kill_is_told_as_a_new_session_or_comes(struck_server: Callable[..., Any]) -> None:
    """It saves what it has acknowledged once a second at best: so the promise holds for what it still has, and no further."""
    stage = Stage(struck_server(MosquittoServer), "killed")
    source = stage.source()
    stage.publish(*numbers(0, 200))
    stage.server.kill()
    stage.server.start()
    source.close()
    again = stage.source()
    found = values(again.take(2_000))
    assert again.notes or found == numbers(0, len(found))
    stage.publish(b"after")

    def goes_on() -> bool:
        again.acknowledge()  # Without it the broker sends a part of what it has kept, and waits.
        return b"after" in values(again.take(500))

    wait_until(goes_on, "what was published after the kill")
    stage.close()


@pytest.mark.parametrize("kind", [(ArtemisServer, ArtemisSettings), (MosquittoServer, MosquittoSettings)])
def test_a_login_that_is_refused_is_named_with_the_remedy(own_server: Callable[..., Any], kind: Any) -> None:
    server_type, settings_type = kind
    server = own_server(server_type, settings_type(users={"bridge": "right"})).start()
    settings = Stage(server, "login").settings(user="bridge", password="wrong", client_id="login")
    for call in (lambda: MqttSource(settings), lambda: preflight_source(settings)):
        with pytest.raises(TransportWithheld, match="refuses the login"):
            call()


def test_a_check_leaves_the_session_of_a_bridge_alone(stage: Stage) -> None:
    source = stage.source()
    preflight_source(stage.settings())
    stage.publish(b"1")
    assert values(take(source, 1)) == [b"1"]


def take(source: MqttSource, count: int) -> list[Line]:
    found: list[Line] = []
    wait_until(lambda: found.extend(source.take(100)) or len(found) >= count, f"{count} messages")
    return found


def values(lines: list[Line]) -> list[bytes]:
    return [each.value for each in lines]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % each for each in range(first, end)]
