"""Pending output: the record, and its stored bytes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from guardian.headers import POSSIBLE_DUPLICATE
from guardian.pending_output import find_origin, from_pending, offset_behind, offset_of, output_record, renumbered, to_pending
from guardian.ports import Channel, OutputRecord
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.notification import Fact, Notification
from resequencer.record import Cut, Origin, Partition, Record
from resequencer.storage_port import Pending, StorageRefused

P = Partition("T", 3)
NOTIFICATION = Notification("ID", "ünit", "ACCP", b"{}", (("notification-id", b"ID"),), Origin(P, 70))
RECORD = Record(Origin(P, 70), b"\xff\x00", b"\xfe", (("a", b"1"), ("a", b"\xff")))
LETTER = DeadLetter(RECORD, DeadLetterReason.UNDECODABLE, "not JSON: \ud800", 1_774_740_835_941)
FACT = Fact("GRÖUP", b"{}", (("member", b"u"), ("source-position", b"T-3@70")), Origin(P, 70))

output_records = st.builds(
    OutputRecord,
    number=st.integers(1, 2**53),
    channel=st.sampled_from(Channel),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), max_size=4).map(tuple),
    value=st.none() | st.binary(max_size=200),
)
PASSED = Notification(
    "ID", "u", "passed-through", None, (("n", b"1"),), Origin(P, 70), key=None, prefix="resequencer-", timestamp=1_774_740_835_941
)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x94\xadnotifications\xc0\x90", b"\x94\xadnotification\xff\xc0\x90\xc4\x00"])
def test_what_is_pending_and_damaged_is_refused_by_its_number(body: bytes) -> None:
    with pytest.raises(StorageRefused, match=r"pending output number 17: .*damaged"):
        from_pending(Pending(17, body))


def test_a_notification_leaves_under_its_unit_with_its_headers() -> None:
    assert output_record(7, NOTIFICATION, 0) == OutputRecord(
        7, Channel.NOTIFICATIONS, "ünit".encode(), (("notification-id", b"ID"),), b"{}"
    )


def test_a_fact_leaves_under_its_key_with_its_headers_and_is_known_by_its_record() -> None:
    left = output_record(7, FACT, 0)
    assert left == OutputRecord(7, Channel.FACTS, "GRÖUP".encode(), FACT.headers, b"{}")
    assert find_origin(FACT) == FACT.origin
    assert offset_of(7, FACT) == offset_behind(left) == 70


@pytest.mark.parametrize("channel", ["notifications", "dead-letters", "orders", "facts"])
def test_these_bytes_are_stored_of_what_is_pending(channel: str) -> None:
    body = bytes((0x94, 0xA0 + len(channel))) + channel.encode() + b"\xc4\x01k\x90\xc4\x02{}"
    assert to_pending(OutputRecord(17, Channel(channel), b"k", (), b"{}")) == Pending(17, body)


def test_what_passes_through_keeps_its_null_value_its_timestamp_and_its_offset_while_it_is_pending() -> None:
    left = output_record(7, PASSED, 71)
    assert (left.key, left.value, left.offset, left.timestamp) == (None, None, 70, 1_774_740_835_941)
    assert left.headers == (("n", b"1"), ("resequencer-possible-duplicate", b"true"))
    assert from_pending(to_pending(left)) == left
    assert renumbered(left, 9) == replace(left, number=9)


def test_what_was_pending_before_timestamps_were_stored_leaves_without_one() -> None:
    stored = msgspec.msgpack.encode(("notifications", None, (("n", b"1"),), b"v", 70, "resequencer-"))
    assert from_pending(Pending(7, stored)) == OutputRecord(
        7, Channel.NOTIFICATIONS, None, (("n", b"1"),), b"v", offset=70, prefix="resequencer-"
    )


@pytest.mark.parametrize("prefix", ["", "resequencer-"])
@pytest.mark.parametrize("key", [None, b"k"])
def test_its_order_is_that_of_its_unit_which_its_key_need_not_name(prefix: str, key: bytes | None) -> None:
    named = ((f"{prefix}unit-of-work", b"unit"), ("resequencer-original-unit-of-work", b"another"))
    assert OutputRecord(1, Channel.NOTIFICATIONS, key, named, b"", prefix=prefix).lane == b"unit"
    assert OutputRecord(1, Channel.NOTIFICATIONS, key, named[1:], b"", prefix=prefix).lane == key


def test_a_dead_letter_leaves_as_it_came_with_four_headers_more() -> None:
    left = output_record(7, LETTER, 0)
    assert (left.channel, left.key, left.value) == (Channel.DEAD_LETTERS, b"\xfe", b"\xff\x00")
    assert left.headers == (
        ("a", b"1"),
        ("a", b"\xff"),
        ("dead-letter-reason", b"undecodable"),
        ("dead-letter-error", b"not JSON: ?"),
        ("dead-letter-source-position", b"T-3@70"),
        ("dead-letter-at", b"2026-03-28T23:33:55.941Z"),
    )


def test_a_cut_dead_letter_says_what_it_was() -> None:
    record = Record(Origin(P, 70), b"beginning", cut=Cut(50_000_000, "abc"))
    headers = dict(output_record(1, DeadLetter(record, DeadLetterReason.TOO_LARGE, "too large", 0), 0).headers)
    assert (headers["dead-letter-value-length"], headers["dead-letter-value-sha256"]) == (b"50000000", b"abc")


def test_the_error_of_a_dead_letter_is_cut_however_much_foreign_code_says() -> None:
    record = Record(Origin(P, 70), b"value")
    headers = dict(output_record(1, DeadLetter(record, DeadLetterReason.HANDLER_FAILED, "ü" * 5_000_000, 0), 0).headers)
    assert headers["dead-letter-error"] == ("ü" * 2_000).encode()


def test_only_what_a_record_below_the_heal_offset_caused_is_marked() -> None:
    for what in (NOTIFICATION, LETTER, FACT):
        assert POSSIBLE_DUPLICATE in dict(output_record(1, what, 71).headers)
        assert POSSIBLE_DUPLICATE not in dict(output_record(1, what, 70).headers)


def test_what_a_record_caused_that_was_requeued_from_a_marked_dead_letter_is_marked_once() -> None:
    requeued = replace(RECORD, headers=(("requeued-possible-duplicate", b"true"),))
    for heal_offset in (70, 71):
        for what in (NOTIFICATION, PASSED, FACT):
            left = output_record(1, replace(what, is_possible_duplicate=True), heal_offset)
            assert left.headers == output_record(1, what, 71).headers
        left = output_record(1, replace(LETTER, record=requeued), heal_offset)
        assert [name for name, _ in left.headers].count(POSSIBLE_DUPLICATE) == 1


def test_what_gets_a_new_number_is_marked_once() -> None:
    left = renumbered(renumbered(output_record(1, NOTIFICATION, 0), 2), 3)
    assert left.number == 3
    assert [name for name, _ in left.headers].count(POSSIBLE_DUPLICATE) == 1


@given(output_records)
def test_whatever_is_pending_leaves_with_the_same_bytes(each: OutputRecord) -> None:
    assert from_pending(to_pending(each)) == each
