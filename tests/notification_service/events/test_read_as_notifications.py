"""A record that passed through is read as a notification, by its unit and our headers, though its key and its own are others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.receivers import receiver
from msgspec.structs import replace

from guardian.headers import OURS, UNIT_OF_WORK, find_ours, find_unit, own_texts
from guardian.ports import Channel, OutputRecord
from notification_service.commands.units import read_output
from notification_service.connectors.dead_letters.actions import StoredDeadLetter, stored_dead_letter
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.size_limits import SizeLimits
from notification_service.connectors.kafka.requeue import _why_not_a_notification
from notification_service.connectors.line_format import Line, encode_line
from notification_service.connectors.region_port import smaller
from notification_service.delivery.caller import _headers
from notification_service.delivery.core.jobs import Claim, Tries
from notification_service.delivery.direct.core.decision import stages_of
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.owned import Reading
from notification_service.delivery.feed import make_item
from notification_service.delivery.settings import Step
from notification_service.events.identifiers import hash_id
from notification_service.events.pass_through import PassThrough
from notification_service.simulator.receiver.check import read_notifications
from notification_service.wiring.sent_notifications import OutputFiles
from resequencer.event import Event
from resequencer.handler import Marks
from resequencer.notification import notification_id
from resequencer.record import Headers, Origin, Partition, Record

UPSTREAM: Headers = (
    ("notification-id", b"THEIRS"),
    ("source-position", b"UPSTREAM-9@99"),
    ("unit-of-work", b"not this one"),
    ("late", b"true"),
    (f"{OURS}notification-id", b"THEIRS TOO"),
    (f"{OURS}{UNIT_OF_WORK}", b"nor this one"),
    ("content-type", b"application/x-protobuf"),
    ("traceparent", b"00-a"),
)
"""Headers of a record that came from two other services like this one."""
ORIGIN, VALUE = Origin(Partition("IN", 3), 17), b"\x08\x96\x01\xff"
OUR_ID = notification_id("order-1", "e1", 0)
TOPICS = KafkaTopics("IN", "OUT", "DEAD")


def passed(unit: str = "order-1", key: bytes | None = b"\xff\x00", event_id: str = "e1", value: bytes = VALUE) -> OutputRecord:
    """Return what leaves of a record, as it is published."""
    record = Record(ORIGIN, value, key, UPSTREAM)
    event = Event(unit, "f", 1, event_id, hash_id(event_id), b"8 bytes!", record)
    (made,) = PassThrough().handle(event, None, Marks("sequence:2"), 0).notifications
    return OutputRecord(1, Channel.NOTIFICATIONS, key, made.headers, made.value, offset=ORIGIN.offset, prefix=made.prefix)


def line(of: OutputRecord) -> bytes:
    return encode_line(Line(of.value, of.key, of.headers), number="0-1")


@pytest.mark.parametrize("key", [b"order-1", b"\xff\x00", b"another", None])
def test_our_headers_win_over_those_of_a_service_before_this_one(key: bytes | None) -> None:
    texts = own_texts(passed(key=key).headers)
    assert find_unit(key, texts) == "order-1"
    assert {name: text for name, text in texts.items() if name != UNIT_OF_WORK} == {
        "notification-id": OUR_ID, "source-position": "IN-3@17", "incomplete": "sequence:2",
    }  # fmt: skip


def test_of_any_other_record_all_headers_are_read_and_the_key_is_the_unit() -> None:
    headers: Headers = (("another", b"1"), (UNIT_OF_WORK, b"a header of its own"))
    assert own_texts(headers) == {"another": "1"}
    assert find_unit(b"uow-1", own_texts(headers)) == "uow-1"
    assert find_ours(headers) is None


def test_a_notification_of_a_handler_of_ones_own_may_have_another_key_than_its_unit() -> None:
    texts = own_texts((("notification-id", b"N1"), (UNIT_OF_WORK, b"order-1")))
    assert find_unit(b"another", texts) == "order-1"


@pytest.mark.parametrize("key", [b"\xff\x00", b"another", None])
def test_delivery_has_the_unit_as_key_and_our_id(key: bytes | None) -> None:
    of = passed(key=key)
    item = make_item(of.key, of.value, of.headers, "OUT-0@1")
    assert (item.key, item.dedup, item.notification_id, item.defect) == ("order-1", OUR_ID, OUR_ID, None)
    assert (item.value, item.headers, item.status) == (VALUE, of.headers, None)


def test_direct_delivery_keeps_the_order_of_a_unit_whose_records_have_different_keys() -> None:
    stages = stages_of(receiver("policy = blocking", is_kafka=True), "OUT", "g")
    reading = Reading(stages[0], SharedGate(stages[0].receiver), _Clock(), "log")
    records = [
        Record(Origin(Partition("OUT", 0), offset), VALUE, key, passed(key=key, event_id=f"e{offset}").headers)
        for offset, key in enumerate((b"\xff\x00", b"another", None, b"order-1"))
    ]
    opened = [reading.open(each, 0) for each in records]
    assert [(each.key, each.lane) for each in opened if each is not None] == [("order-1", b"order-1")] * 4
    assert [reading.find_flaw(each) for each in opened if each is not None] == [None] * 4
    assert len({each.notification_id for each in opened if each is not None}) == 4


class _Clock:
    def now(self) -> int:
        return 0


def call_of(headers: Headers, value: bytes = VALUE) -> dict[bytes, bytes]:
    return dict(_headers(Claim(1, 1, "r", "order-1", Step.DELIVER, Tries(), OUR_ID, headers, value, "j"), is_delivery=True))


def test_a_call_has_the_media_type_that_the_record_names_and_our_marks_alone() -> None:
    assert call_of(passed().headers) == {
        b"traceparent": b"00-a", b"content-type": b"application/x-protobuf", b"idempotency-key": OUR_ID.encode(),
        b"incomplete": b"sequence:2", b"notification-id": OUR_ID.encode(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        ((("contentType", b"application/json"),), b"application/json"),
        ((), b"application/octet-stream"),
        ((("content-type", b"a\r\nx: y"),), b"application/octet-stream"),
    ],
)
def test_what_names_none_is_bytes_though_they_look_like_xml(own: Headers, kind: bytes) -> None:
    assert call_of((*own, (f"{OURS}notification-id", b"N")), b"<a/>")[b"content-type"] == kind


def test_on_files_a_units_story_has_the_records_that_a_header_names(tmp_path: Path) -> None:
    lines = [line(passed()), line(passed("order-2", b"order-1")), line(passed(key=b"order-1", event_id="e2", value=b"order-1"))]
    (tmp_path / "notifications.jsonl").write_bytes(b"".join(lines))
    found = OutputFiles(tmp_path, SystemFiles()).find_sent("order-1", 9.0).found
    assert [each.notification_id for each in found] == [OUR_ID, notification_id("order-1", "e2", 0)]
    assert [(each.position, each.marks, each.event, each.status) for each in found] == [
        ("IN-3@17", ("incomplete sequence:2",), "", None)
    ] * 2
    lines_of_unit = read_output("order-1", tmp_path / "notifications.jsonl").lines
    assert [each.value for each in lines_of_unit] == [VALUE, b"order-1"]


def test_the_check_of_a_receiver_expects_unit_and_our_id(tmp_path: Path) -> None:
    (tmp_path / "notifications.jsonl").write_bytes(line(passed()))
    assert list(read_notifications([tmp_path / "notifications.jsonl"])) == [("order-1", OUR_ID)]


def test_the_dead_letter_of_what_is_too_large_to_leave_names_our_position() -> None:
    limits = SizeLimits(TOPICS, {"OUT": 10, "DEAD": 9_000})
    assert dict(limits.fit(passed(), 0).headers)["dead-letter-source-position"] == b"IN-3@17"
    first = next(iter(smaller(passed(), "too large", 0)))
    assert dict(first.headers)["dead-letter-source-position"] == b"IN-3@17"


@pytest.mark.parametrize("is_marked", [False, True])
def test_the_dead_letter_of_what_is_too_large_to_leave_has_the_mark_as_any_dead_letter(is_marked: bool) -> None:
    mark = (f"{OURS}possible-duplicate", b"true")
    record = replace(passed(), headers=(*passed().headers, *([mark] if is_marked else [])))
    limits = SizeLimits(TOPICS, {"OUT": 10, "DEAD": 9_000})
    for headers in (limits.fit(record, 0).headers, *(each.headers for each in smaller(record, "too large", 0))):
        assert [value for name, value in headers if name == "possible-duplicate"] == [b"true"] * is_marked
    assert stored(limits.fit(record, 0).headers).letter.record.headers == record.headers


def test_a_dead_letter_of_the_input_is_requeued_though_it_was_a_notification_before() -> None:
    ours = SizeLimits(TOPICS, {"OUT": 10, "DEAD": 9_000}).fit(passed(), 0)
    assert "its topic refused" in str(_why_not_a_notification(stored(ours.headers)))
    reason: Any = (
        ("dead-letter-reason", b"no-sequence"),
        ("dead-letter-error", b""),
        ("dead-letter-at", b"2026-03-28T00:00:00.000Z"),
    )
    assert _why_not_a_notification(stored((*UPSTREAM, *reason, ("dead-letter-source-position", b"IN-3@17")))) is None


def stored(headers: Headers) -> StoredDeadLetter:
    return stored_dead_letter("DEAD-0#1", "", b"\xff\x00", headers, VALUE)
