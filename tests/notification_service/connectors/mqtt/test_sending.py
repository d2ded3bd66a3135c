"""What is under way at the same time, and when a publication is over, against a connection that confirms as the test says."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from guardian.ports import Channel, OutputRecord, TransportUnavailable, TransportWithheld
from notification_service.connectors.mqtt.connection import Confirmation, Limits
from notification_service.connectors.mqtt.messages import Outgoing, outgoing
from notification_service.connectors.mqtt.sink import Sending
from notification_service.connectors.region_port import Numbered
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notifications

ONE, _ = PARTITIONS


class Reason(NamedTuple):
    value: int


class Connection:
    """Confirms one of the messages under way at a time, which `choose` picks; the last `lost` ones never."""

    def __init__(self, choose: Callable[[list[int]], int], receive_maximum: int = 20, lost: int = 0, reason: int = 0) -> None:
        self.limits = Limits(receive_maximum, 1 << 28, 2)
        self.sent: list[Outgoing] = []
        self.under_way: dict[int, Outgoing] = {}
        self.most = 0
        self._choose = choose
        self._lost = lost
        self._reason = reason

    def publish(self, message: Outgoing, qos: int) -> int:
        assert all(each.correlation != message.correlation for each in self.under_way.values()), "two messages of a unit"
        self.sent.append(message)
        self.under_way[len(self.sent)] = message
        self.most = max(self.most, len(self.under_way))
        return len(self.sent)

    def next_confirmation(self) -> Confirmation:
        if len(self.under_way) <= self._lost:
            raise TransportUnavailable("no answer")
        mid = self._choose(sorted(self.under_way))
        del self.under_way[mid]
        return Confirmation(mid, Reason(self._reason))


def records(count: int, units: int) -> list[Numbered]:
    return [Numbered(ONE, replace(each, key=b"%d" % (each.number % units))) for each in notifications(1, count)]


def made(record: OutputRecord) -> Outgoing:
    return outgoing("T", record.key, (), record.value)


def test_it_is_over_when_each_message_is_confirmed_and_units_stay_in_order() -> None:
    connection = Connection(Random(1).choice)
    sending = Sending(connection, 1)
    sending.send(records(500, 30), made)
    assert connection.under_way == {}
    assert (sending.confirmed, len(connection.sent), connection.most) == (500, 500, 20)
    for unit in range(30):
        of_unit = [each.payload for each in connection.sent if each.correlation == b"%d" % unit]
        assert of_unit == [each.record.value for each in records(500, 30) if each.record.key == b"%d" % unit]


def test_what_passes_through_is_in_order_by_its_unit_whatever_its_keys_are_and_null_is_empty() -> None:
    connection = Connection(Random(1).choice)
    keys, units = [b"1", b"2", None], [f"{number % 30}".encode() for number in range(500)]
    passed = [
        Numbered(
            ONE,
            OutputRecord(
                number,
                Channel.NOTIFICATIONS,
                Random(number).choice(keys),
                (("resequencer-unit-of-work", unit), ("n", b"%d" % number)),
                None,
                prefix="resequencer-",
            ),
        )
        for number, unit in enumerate(units, 1)
    ]
    sending = Sending(connection, 1)
    sending.send(passed, lambda record: outgoing("T", record.lane, record.headers, record.value))
    assert (sending.confirmed, {each.payload for each in connection.sent}) == (500, {b""})
    sent = [dict(each.properties) for each in connection.sent]
    for unit in set(units):
        of_unit = [int(each["n"]) for each in sent if each["resequencer-unit-of-work"] == unit.decode()]
        assert of_unit == sorted(of_unit)


def test_a_single_message_without_confirmation_leaves_it_undecided() -> None:
    connection = Connection(min, lost=1)
    sending = Sending(connection, 1)
    with pytest.raises(TransportUnavailable):
        sending.send(records(10, 10), made)
    assert sending.confirmed == 9


def test_what_is_confirmed_behind_a_gap_is_not_counted() -> None:
    """The next call sends from the first message on that is not confirmed."""
    connection = Connection(max, lost=1)
    sending = Sending(connection, 1)
    with pytest.raises(TransportUnavailable):
        sending.send(records(10, 10), made)
    assert sending.confirmed == 0


def test_messages_without_a_key_do_not_wait_for_each_other() -> None:
    connection = Connection(min, receive_maximum=5)
    sending = Sending(connection, 1)
    distinct = iter(range(100))
    sending.send(
        [Numbered(ONE, replace(each, key=None)) for each in notifications(1, 20)],
        lambda record: outgoing("T", b"%d" % next(distinct), (), record.value),
    )
    assert (sending.confirmed, connection.most) == (20, 5)


def test_a_refusal_ends_it() -> None:
    sending = Sending(Connection(min, reason=0x87), 1)
    with pytest.raises(TransportWithheld, match="topic T"):
        sending.send(records(3, 3), made)
    assert sending.confirmed == 0
