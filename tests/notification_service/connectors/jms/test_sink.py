"""What a JMS sink makes of records, and that a transaction is whole."""

import pytest
from msgspec.structs import replace

from guardian.headers import DEAD_LETTER_ERROR, DEAD_LETTER_REASON, DEAD_LETTER_VALUE_LENGTH, NOTIFICATION_ID
from guardian.ports import Channel, OutputRecord, PublishRefused
from notification_service.connectors.jms.messages import property_name
from servers.artemis import ArtemisServer
from tests.notification_service.connectors.jms.stage import Queues
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notification, notifications, output

pytestmark = pytest.mark.slow

ONE, TWO = PARTITIONS


def test_a_commit_waits_for_all_that_exceeds_the_credit_of_the_link(artemis: ArtemisServer) -> None:
    """A commit that does not wait for it is answered as done, and the rest is missing: 1 139 of 1 500 were seen."""
    queues = Queues.fresh(artemis)
    sink = queues.sink()
    sink.position(ONE)
    records = tuple(replace(each, value=b'{"n":"%s"}' % (b"x" * 1_000)) for each in notifications(1, 1_500))
    for offset in range(3):
        more = tuple(replace(each, number=each.number + 1_500 * offset) for each in records)
        sink.publish([output(ONE, more, offset)])
    sink.close()
    assert len(queues.left(Channel.NOTIFICATIONS, 4_500)) == 4_500


def test_there_is_one_marker_for_each_partition_however_often_it_changes(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    for turn in range(3):
        sink = queues.sink()
        for each in PARTITIONS:
            sink.position(each)
            sink.publish([output(each, notifications(turn + 1, 1), turn)])
        sink.close()
    assert len(queues.markers()) == 2


def test_two_owners_that_begin_at_once_make_one_marker(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    first, second = queues.sink(), queues.sink()
    assert first.position(ONE) is second.position(ONE) is None
    assert len(queues.markers()) == 1
    first.close()
    second.close()


def test_a_partition_whose_marker_was_not_read_is_refused(artemis: ArtemisServer) -> None:
    sink = Queues.fresh(artemis).sink()
    sink.position(ONE)
    with pytest.raises(PublishRefused, match="were not read: EVENTS-1"):
        sink.publish([output(ONE, (), 0), output(TWO, (), 0)])
    sink.close()


def test_headers_are_properties_that_jms_can_name(artemis: ArtemisServer) -> None:
    assert [property_name(each) for each in ("notification-id", "a.b", "1st", "JMSXGroupID", "like", "é", "")] == [
        "notification_id",
        "a_b",
        "_1st",
        "_JMSXGroupID",
        "_like",
        "_",
        "_",
    ]
    queues = Queues.fresh(artemis)
    sink = queues.sink()
    sink.position(ONE)
    sink.publish([output(ONE, notifications(1, 1), 1)])
    # A selector of JMS finds it by the name of the property.
    found = queues.browse(f"{queues.name}-N", selector="notification_id = '1'")
    assert dict(found[0].headers) == {NOTIFICATION_ID: b"1"}
    sink.close()


@pytest.mark.parametrize("kind", ["jms", "xms"])
def test_a_null_value_is_a_message_without_a_body_and_an_empty_one_is_not(artemis: ArtemisServer, kind: str) -> None:
    queues = Queues.fresh(artemis)
    sink = queues.sink() if kind == "jms" else queues.xms_sink()
    sink.position(ONE)
    values = [None, b"", b"\x00\xff", b"text"]
    records = tuple(replace(each, value=value) for each, value in zip(notifications(1, 4), values, strict=True))
    sink.publish([output(ONE, records, 1)])
    assert [each.value for each in queues.left(Channel.NOTIFICATIONS, 4)] == values
    sink.close()


def test_channels_without_a_queue_are_passed_over(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    sink = queues.sink()
    sink.position(ONE)
    fact = OutputRecord(1, Channel.FACTS, b"g", (), b"{}")
    outcome = OutputRecord(2, Channel.ORDER_OUTCOMES, None, (), b"{}")
    sink.publish([output(ONE, (fact, outcome, notification(3)), 1)])
    assert sink.position(ONE).highest == 3
    assert len(queues.left(Channel.NOTIFICATIONS)) == 1
    sink.close()


def test_a_notification_that_is_too_large_leaves_as_a_dead_letter_and_that_is_cut(artemis: ArtemisServer, monkeypatch) -> None:
    """Artemis takes any size, so the limit is planted where the broker tells its own."""
    from notification_service.connectors.jms import sending

    queues = Queues.fresh(artemis)
    sink = queues.sink()
    sink.position(ONE)
    monkeypatch.setattr(sending, "limit_of", lambda _: 100_000)
    large = replace(notification(2), value=b"x" * 90_000, headers=(("padding", b"y" * 20_000),))
    larger = OutputRecord(3, Channel.DEAD_LETTERS, b"k", ((DEAD_LETTER_REASON, b"undecodable"),), b"z" * 500_000)
    sink.publish([output(ONE, (notification(1), large, larger, notification(4)), 1)])
    assert [each.value for each in queues.left(Channel.NOTIFICATIONS)] == [b'{"n":1}', b'{"n":4}']
    letter, cut = queues.left(Channel.DEAD_LETTERS)
    assert b"accepts 100000" in dict(letter.headers)[DEAD_LETTER_ERROR]
    assert dict(letter.headers)[DEAD_LETTER_VALUE_LENGTH] == b"90000"
    assert (dict(cut.headers)[DEAD_LETTER_VALUE_LENGTH], len(cut.value)) == (b"500000", 64 * 1024)
    assert sink.position(ONE).highest == 4
    sink.close()
