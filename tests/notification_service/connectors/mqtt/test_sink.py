"""What an MQTT sink makes of records, and that it returns only when the broker has confirmed everything."""

from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event, Timer
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from harness.nightly import at_night
from harness.waiting import wait_until
from msgspec.structs import replace

from guardian.headers import DEAD_LETTER_ERROR, DEAD_LETTER_REASON, DEAD_LETTER_VALUE_LENGTH, ENVELOPE_ID, NOTIFICATION_ID
from guardian.ports import Channel, OutputRecord, PartitionOutput, TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.mqtt.messages import outgoing
from notification_service.connectors.mqtt.sink import MqttSink
from notification_service.connectors.optional_clients import connect_mqtt
from servers.artemis import ArtemisServer, ArtemisSettings
from servers.mosquitto import MosquittoServer, MosquittoSettings
from tests.notification_service.connectors.mqtt.stage import Broker, Subscriber, Topics
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notification, notifications, output

pytestmark = pytest.mark.slow

ONE, TWO = PARTITIONS
NOTIFICATIONS, DEAD_LETTERS = Channel.NOTIFICATIONS, Channel.DEAD_LETTERS
OwnServer = Callable[..., Any]


@pytest.fixture(params=["mosquitto", *at_night("sinks", "artemis")])
def server(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topics(server: Broker) -> Topics:
    return Topics.fresh(server)


@pytest.fixture
def subscriber(topics: Topics) -> Iterator[Subscriber]:
    with closing(topics.subscriber()) as made:
        yield made


def numbers(subscriber: Subscriber, count: int) -> list[int]:
    return [int(each.value[5:-1]) for each in subscriber.wait_for(count)]


def is_published(sink: MqttSink, outputs: list[PartitionOutput]) -> bool:
    try:
        sink.publish(outputs)
    except TransportUnavailable:
        return False
    return True


def test_it_returns_when_everything_is_confirmed_and_not_before(struck_server: OwnServer) -> None:
    """With the broker paused the messages are in the client's queue and in the socket: that is no confirmation."""
    topics = Topics.fresh(struck_server(ArtemisServer))
    with closing(topics.subscriber()) as subscriber, closing(topics.sink()) as sink:
        sink.position(ONE)
        sink.publish([output(ONE, notifications(1, 1), 1)])
        topics.server.pause()
        goes_on = Event()

        def go_on() -> None:
            goes_on.set()  # Before the broker does.
            topics.server.resume()

        Timer(1, go_on).start()
        of_units = tuple(replace(each, key=b"%d" % each.number) for each in notifications(2, 20))
        sink.publish([output(ONE, of_units, 2)])
        assert goes_on.is_set(), "it returned before the broker went on"
        assert sorted(set(numbers(subscriber, 21))) == list(range(1, 22))


def test_a_broker_that_does_not_answer_leaves_the_call_undecided_and_the_same_call_ends_it(struck_server: OwnServer) -> None:
    topics = Topics.fresh(struck_server(ArtemisServer), heartbeat_ms=2_000, call_ms=3_000)
    with closing(topics.subscriber()) as subscriber, closing(topics.sink()) as sink:
        sink.position(ONE)
        sink.publish([output(ONE, notifications(1, 1), 1)])
        topics.server.pause()
        for _ in range(2):
            with pytest.raises(TransportUnavailable, match=r"does not answer|is lost"):
                sink.publish([output(ONE, notifications(1, 5), 2)])
        topics.server.resume()
        wait_until(lambda: is_published(sink, [output(ONE, notifications(1, 5), 2)]), "the broker answers")
        assert sorted(set(numbers(subscriber, 5))) == [1, 2, 3, 4, 5]


def test_a_broker_that_was_killed_is_connected_to_anew_by_the_next_call_alone(struck_server: OwnServer) -> None:
    topics = Topics.fresh(struck_server(ArtemisServer))
    with closing(topics.sink()) as sink:
        sink.position(ONE)
        sink.publish([output(ONE, notifications(1, 1), 1)])
        topics.server.kill()
        with pytest.raises(TransportUnavailable):
            sink.publish([output(ONE, notifications(2, 3), 2)])
        wait_until(lambda: not any(each.name.startswith("paho") for each in enumerate_threads()), "its client has ended")
        topics.server.start()
        with closing(topics.subscriber()) as subscriber:
            assert subscriber.wait_for(0) == [], "the client has connected again by itself"
            sink.publish([output(ONE, notifications(2, 3), 2)])
            assert numbers(subscriber, 3) == [2, 3, 4]


def test_a_connection_that_is_lost_stays_lost(struck_server: OwnServer) -> None:
    """A client that connects again by itself would send what is sent anew by the region, too."""
    topics = Topics.fresh(struck_server(MosquittoServer))
    with closing(connect_mqtt(topics.broker)) as connection:
        topics.server.restart()
        wait_until(lambda: connection.is_lost, "it is noticed")
        wait_until(lambda: not connection._client.is_running, "the thread that could connect again has ended")
        assert not connection._client.is_connected()


@pytest.mark.parametrize("qos", [1, 2])
def test_the_messages_of_a_unit_come_in_order_while_those_of_others_are_under_way(
    topics: Topics, subscriber: Subscriber, qos: int
) -> None:
    """Artemis mixes messages up that are under way together, and did so in each run in which a unit's were."""
    with closing(topics.sink(qos=qos)) as sink:
        sink.position(ONE)
        records = tuple(replace(each, key=b"%d" % (each.number % 50)) for each in notifications(1, 2_000))
        sink.publish([output(ONE, records, 1)])
    found = numbers(subscriber, 2_000)
    assert len(found) == 2_000
    for unit in range(50):
        assert [each for each in found if each % 50 == unit] == list(range(unit or 50, 2_001, 50))


def test_any_text_in_a_header_arrives_in_a_form_that_clients_take(topics: Topics, subscriber: Subscriber) -> None:
    """Some brokers close the connection of whoever sends such a text, and clients that of whoever receives it."""
    texts = ["Zürich\n", "a\x00b", "\x7f", "\ufdd0", "\uffff", "\U0001ffff", "\ufeff", "x" * 70_000, "é" * 70_000]
    records = tuple(
        replace(notification(number), headers=((ENVELOPE_ID, text.encode()),), key=b"%d" % number)
        for number, text in enumerate(texts, start=1)
    )
    invalid = replace(notification(10), headers=((ENVELOPE_ID, b"\xff\xfe"),), key=b"k" * 70_000)
    with closing(topics.sink()) as sink:
        sink.position(ONE)
        sink.publish([output(ONE, (*records, invalid), 1)])
    came = sorted(subscriber.wait_for(10), key=lambda each: int(each.value[5:-1]))
    ids = [dict(each.headers)[ENVELOPE_ID].decode() for each in came]
    assert ids[:7] == ["Zürich\ufffd", "a\ufffdb", *["\ufffd"] * 5]
    assert [len(each) for each in ids[7:]] == [65_535, 32_767, 2]
    assert came[9].key == b"k" * 65_535


def test_a_message_without_a_subscriber_is_told_of_where_the_broker_tells_it(mosquitto: MosquittoServer) -> None:
    topics = Topics.fresh(mosquitto)
    with closing(topics.sink()) as sink:
        sink.position(ONE)
        sink.publish([output(ONE, notifications(1, 3), 1)])
        assert sink.notes == ["sink mqtt: the broker dropped 3 messages of the last publication, which had no subscriber"]
        with closing(topics.subscriber()):
            sink.publish([output(ONE, notifications(4, 1), 2)])
            assert sink.notes == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_topic_that_the_broker_refuses_is_refused(own_server: OwnServer, qos: int) -> None:
    """With qos 2 the client ignores the refusal by itself, and the broker grants the completion of what it has not."""
    server = own_server(ArtemisServer, ArtemisSettings(users={"app": "secret"}, closed=("CLOSED",))).start()
    topics = Topics.fresh(server)
    broker = replace(topics.broker, user="app", password="secret")
    with closing(MqttSink(lambda: topics.settings(broker=broker, qos=qos, notifications="CLOSED"), _Clock())) as sink:
        sink.position(ONE)
        with pytest.raises(TransportWithheld, match=r"topic CLOSED: the broker refuses it \(Not authorized\)"):
            sink.publish([output(ONE, notifications(1, 1), 1)])


@pytest.mark.parametrize("kind", [ArtemisServer, MosquittoServer])
def test_a_wrong_login_is_refused_and_the_password_is_not_told(own_server: OwnServer, kind: Any) -> None:
    settings = ArtemisSettings if kind is ArtemisServer else MosquittoSettings
    topics = Topics.fresh(own_server(kind, settings(users={"app": "secret"})).start())
    broker = replace(topics.broker, user="app", password="s3cret")
    with closing(topics.sink(broker=broker)) as sink:
        sink.position(ONE)
        with pytest.raises(TransportWithheld, match=r"refuses the login.*Check mqtt.user and mqtt.password") as refused:
            sink.publish([output(ONE, notifications(1, 1), 1)])
        assert "s3cret" not in str(refused.value)


def test_a_qos_that_the_broker_does_not_take_is_refused(own_server: OwnServer) -> None:
    topics = Topics.fresh(own_server(MosquittoServer, MosquittoSettings(options=["max_qos 1"])).start())
    with closing(topics.sink(qos=2)) as sink:
        sink.position(ONE)
        with pytest.raises(TransportRefused, match=r"takes qos 1 at most, and mqtt.qos is 2. Lower it"):
            sink.publish([output(ONE, notifications(1, 1), 1)])


def test_a_notification_that_is_too_large_leaves_as_a_dead_letter_and_that_is_cut(own_server: OwnServer) -> None:
    topics = Topics.fresh(own_server(MosquittoServer, MosquittoSettings(options=["max_packet_size 100000"])).start())
    large = replace(notification(2), value=b"x" * 90_000, headers=((ENVELOPE_ID, b"y" * 20_000), (NOTIFICATION_ID, b"2")))
    larger = OutputRecord(3, DEAD_LETTERS, b"k", ((DEAD_LETTER_REASON, b"undecodable"),), b"z" * 500_000)
    with (
        closing(topics.subscriber()) as subscriber,
        closing(topics.subscriber(DEAD_LETTERS)) as letters,
        closing(topics.sink()) as sink,
    ):
        sink.position(ONE)
        sink.publish([output(ONE, (notification(1), large, larger, notification(4)), 1)])
        assert numbers(subscriber, 2) == [1, 4]
        letter, cut = sorted(letters.wait_for(2), key=lambda each: each.key != b"unit")
    assert b"the broker accepts 100000" in dict(letter.headers)[DEAD_LETTER_ERROR]
    assert dict(letter.headers)[DEAD_LETTER_VALUE_LENGTH] == b"90000"
    assert (dict(cut.headers)[DEAD_LETTER_VALUE_LENGTH], len(cut.value)) == (b"500000", 64 * 1024)


def test_the_size_of_a_packet_is_never_told_too_small(own_server: OwnServer) -> None:
    """A broker closes the connection on a larger one, and the record would never leave."""
    topics = Topics.fresh(own_server(MosquittoServer, MosquittoSettings(options=["max_packet_size 30000"])).start())
    with closing(topics.subscriber()) as subscriber, closing(topics.sink()) as sink:
        sink.position(ONE)
        record = replace(notification(1), headers=tuple((f"é{number}", "é".encode()) for number in range(100)))
        empty = outgoing(topics.topic(NOTIFICATIONS), record.key, record.headers, b"").packet_bytes
        sink.publish([output(ONE, (replace(record, value=b"x" * (30_000 - empty)),), 1)])
        assert len(subscriber.wait_for(1)) == 1


def test_channels_without_a_topic_are_passed_over(topics: Topics, subscriber: Subscriber) -> None:
    with closing(topics.sink()) as sink:
        sink.position(ONE)
        fact = OutputRecord(1, Channel.FACTS, b"g", (), b"{}")
        outcome = OutputRecord(2, Channel.ORDER_OUTCOMES, None, (), b"{}")
        sink.publish([output(ONE, (fact, outcome, notification(3)), 1)])
        assert numbers(subscriber, 1) == [3]


def test_attributes_that_change_hold_from_the_next_publication_on(topics: Topics, mosquitto: MosquittoServer) -> None:
    current = [topics.settings()]
    elsewhere = Topics.fresh(mosquitto)
    moved = replace(elsewhere.settings(qos=0), changes="it was moved")
    with (
        closing(topics.subscriber()) as before,
        closing(elsewhere.subscriber()) as after,
        closing(topics.sink(lambda: current[0])) as sink,
    ):
        sink.position(ONE)
        sink.publish([output(ONE, notifications(1, 2), 1)])
        current[0] = moved
        sink.publish([output(ONE, notifications(1, 4), 2)])
        assert (numbers(before, 2), numbers(after, 2)) == ([1, 2], [3, 4])
        assert [each.qos for each in after.came] == [0, 0]
        assert sink.notes == ["it was moved"]


class _Clock:
    def now(self) -> int:
        return 0
