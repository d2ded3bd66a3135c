"""The bridge's source of AMQP 1.0 without transactions, on a real broker. No queue manager of IBM was tested."""

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from harness.waiting import wait_until
from msgspec.structs import asdict
from proton import Message

from guardian.ports import TransportUnavailable, TransportWithheld
from notification_service.connectors.jms.preflight import preflight_queue
from notification_service.connectors.jms.settings import XmsSourceSettings
from notification_service.connectors.jms.xms_source import XmsSource
from notification_service.connectors.line_format import Line
from servers.artemis import ArtemisServer, ArtemisSettings
from tests.notification_service.connectors.jms.stage import Queues

pytestmark = pytest.mark.slow


def test_body_correlation_id_and_properties_are_value_key_and_headers(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    text = Message(body="{}", correlation_id="unit", properties={"schema_version": "2", "other": "x"})
    queues.send(text, Message(body=b"\xff", id=uuid4()), Message(body={"a": 1}), Message(body=b"grouped", group_id="g"))
    source = open_source(queues)
    assert take(source, 4) == [
        Line(b"{}", b"unit", (("schema-version", b"2"), ("other", b"x"))),
        Line(b"\xff"),
        Line(b"{'a': 1}"),
        Line(b"grouped"),
    ]
    source.close()


def test_a_message_beyond_the_limit_comes_as_its_beginning_with_length_and_digest(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send(Message(body=b"x" * 3_000_000, correlation_id="unit", properties={"other": "x"}), Message(body=b"{}"))
    source = open_source(queues, max_value_bytes=1_000_000)
    found, behind = take(source, 2)
    assert (found.key, found.value, behind.value) == (b"unit", b"x" * 65_536, b"{}")
    digest = hashlib.sha256(b"x" * 3_000_000).hexdigest().encode()
    cut = (("dead-letter-value-length", b"3000000"), ("dead-letter-value-sha256", digest))
    assert found.headers == (("other", b"x"), *cut)
    source.acknowledge()
    source.close()


def test_what_is_not_taken_is_bounded_by_its_bytes_and_comes_later(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send(*[Message(body=b"%d" % each + b"x" * 1_000_000) for each in range(40)])
    source = open_source(queues)
    wait_until(lambda: source._link.waiting >= 16, "as many as there is room for")
    queues.browse(f"{queues.name}-OTHER")
    found: list[Line] = []
    while len(found) < 40:
        taken = source.take(5_000)
        assert 0 < len(taken) <= 18
        found += taken
        source.acknowledge()
    assert [int(each.value.rstrip(b"x")) for each in found] == list(range(40))
    source.close()


def test_what_is_taken_and_not_acknowledged_is_bounded_by_its_bytes_too(artemis: ArtemisServer) -> None:
    """A start that is away for hours must not let the bridge take all that the queue has."""
    queues = Queues.fresh(artemis)
    queues.send(*[Message(body=b"%d" % each + b"x" * 1_000_000) for each in range(60)])
    source = open_source(queues)
    found = take(source, 16)
    wait_until(lambda: source._link.waiting >= 16, "as many as there is room for")
    found += source.take(0)
    assert len(found) <= 18
    while len(found) < 60:
        source.acknowledge()
        found += take(source, 1)
    assert [int(each.value.rstrip(b"x")) for each in found] == list(range(60))
    source.close()


def test_what_was_not_acknowledged_comes_again_in_order(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send(*[Message(body=b"%d" % each) for each in range(20)])
    source = open_source(queues, window=8)
    assert values(take(source, 8)) == numbers(0, 8)
    assert source.take(300) == []
    source.acknowledge()
    assert values(take(source, 8)) == numbers(8, 16)
    source.close()
    again = open_source(queues)
    assert values(take(again, 12)) == numbers(8, 20)
    again.acknowledge()
    again.close()
    last = open_source(queues)
    assert last.take(500) == []
    last.close()


def test_a_broker_that_is_killed_is_noticed_and_delivers_again(own_server: Callable[..., Any]) -> None:
    queues = Queues.fresh(own_server(ArtemisServer).start())
    queues.send(*[Message(body=b"%d" % each, durable=True) for each in range(5)])
    source = open_source(queues)
    assert values(take(source, 5)) == numbers(0, 5)
    queues.server.kill()
    with pytest.raises(TransportUnavailable):
        wait_until(lambda: source.take(100), "the loss is noticed")
    with pytest.raises(TransportUnavailable):
        source.acknowledge()
    source.close()
    queues.server.start()
    again = open_source(queues)
    assert values(take(again, 5)) == numbers(0, 5)
    again.close()


def test_a_queue_or_a_right_that_is_missing_is_named(own_server: Callable[..., Any]) -> None:
    settings = ArtemisSettings(users={"bridge": "right"}, closed=("CLOSED",), queues={"OPEN": False, "CLOSED": False})
    server = own_server(ArtemisServer, settings).start()
    preflight_queue(XmsSourceSettings(server.url, "bridge", "right", queue="OPEN"))
    closed = XmsSourceSettings(server.url, "bridge", "right", queue="CLOSED")
    for call in (preflight_queue, XmsSource):
        with pytest.raises(TransportWithheld, match="CLOSED"):
            call(closed)


def open_source(queues: Queues, **given: Any) -> XmsSource:
    return XmsSource(XmsSourceSettings(**asdict(queues.broker), queue=queues.events, **given))


def take(source: XmsSource, count: int) -> list[Line]:
    found: list[Line] = []
    while len(found) < count:
        taken = source.take(5_000)
        assert taken, f"{len(found)} of {count} came"
        found += taken
    return found


def values(lines: list[Line]) -> list[bytes]:
    return [each.value for each in lines]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % each for each in range(first, end)]
