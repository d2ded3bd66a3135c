"""Records that pass through are the same bytes on their topic: null and empty values and keys, headers, timestamps."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.partitioner.default import murmur2

from guardian.headers import OURS, own_texts
from guardian.pending_output import from_pending, output_record, to_pending
from guardian.ports import Channel, OutputRecord
from notification_service.connectors.dead_letters.port import AskedFor, Signature
from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
from notification_service.events.pass_through import PassThrough
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.event import Event
from resequencer.handler import Marks
from resequencer.record import Headers, Origin, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers.kafka import KafkaServer
    from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow

THEN = 1_000_000_000_000
HEADERS: Headers = (("a", b"1"), ("a", b"\xff"), ("\u00fc", b""), ("source-position", b"UPSTREAM-0@1"))
PARTS: list[tuple[bytes | None, bytes | None]] = [
    (key, value) for key in (None, b"", b"\xff\x00", b"unit") for value in (None, b"", b"\x00\xff", b"x" * 100_000)
]


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    """Topics that keep records of any age."""
    from tests.notification_service.connectors.kafka.stage import KafkaStage

    stage = KafkaStage(kafka, config={"retention.ms": "-1"})
    yield stage
    stage.close()


def passed(stage: KafkaStage, number: int, key: bytes | None, value: bytes | None, headers: Headers = HEADERS) -> OutputRecord:
    """Return a record of a unit as it is published, after it was pending in a storage."""
    record = Record(Origin(stage.partitions[0], 40 + number), value, key, headers, written_at=THEN - number)
    (notification,) = PassThrough().handle(_event(record), None, Marks(), 0).notifications
    return from_pending(to_pending(output_record(number, notification, 0)))


def _event(record: Record) -> Event:
    return Event("unit", "events", 1, "id", bytes(8), bytes(8), record)


def came_in(each: Any) -> tuple[bytes | None, bytes | None, Headers]:
    return each.key, each.value, tuple(header for header in each.headers if not header[0].startswith(OURS))


def test_key_value_headers_and_timestamp_are_as_they_came(stage: KafkaStage) -> None:
    worker = stage.worker()
    stage.settle(worker)
    worker.publish(stage.partitions[0], *(passed(stage, number, *each) for number, each in enumerate(PARTS, 1)))
    by_number = {THEN - each.timestamp: each for each in stage.outputs()}
    assert [came_in(by_number[number]) for number in sorted(by_number)] == [(*each, HEADERS) for each in PARTS]


def test_without_a_key_a_record_goes_to_the_partition_of_its_unit_and_with_one_to_that_of_the_key(stage: KafkaStage) -> None:
    worker = stage.worker()
    stage.settle(worker)
    worker.publish(stage.partitions[0], *(passed(stage, number, *each) for number, each in enumerate(4 * PARTS, 1)))
    for each in stage.outputs():
        assert each.partition == (murmur2(b"unit" if each.key is None else each.key) & 0x7FFFFFFF) % 2
        assert own_texts(tuple(each.headers)).get("unit-of-work") == (None if each.key == b"unit" else "unit")


@pytest.mark.parametrize("key", [None, b"k"])
def test_one_with_too_large_headers_is_a_dead_letter_that_names_where_it_came_from(stage: KafkaStage, key: bytes | None) -> None:
    with closing(stage.kafka.admin()) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.notifications, {"max.message.bytes": "1000"})])
    worker = stage.worker()
    stage.settle(worker)
    headers = (*HEADERS, ("delivery-source-position", b"UPSTREAM-0@2"), ("large", b"x" * 1_000))
    worker.publish(stage.partitions[0], passed(stage, 1, key, None, headers), passed(stage, 2, b"k", b"fits"))
    assert [each.value for each in stage.outputs()] == [b"fits"]
    (dead,) = stage.outputs(Channel.DEAD_LETTERS)
    dead_headers = dict(dead.headers)
    assert (dead.key, dead.value, tuple(dead.headers[: len(headers)])) == (key, None, headers)
    assert (dead_headers["dead-letter-reason"], dead_headers["dead-letter-source-position"]) == (
        b"too-large",
        str(Origin(stage.partitions[0], 41)).encode(),
    )
    (outcome,) = requeued(stage)
    assert "it is a notification that its topic refused" in str(outcome.problem)


@pytest.mark.parametrize("refused", [1, 3])
@pytest.mark.parametrize("config", ["message.timestamp.before.max.ms", "message.timestamp.after.max.ms"])
def test_timestamps_that_the_topic_refuses_are_replaced_by_those_of_sending_and_no_others(
    stage: KafkaStage, config: str, refused: int
) -> None:
    with closing(stage.kafka.admin()) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.notifications, {config: str(3_600_000)})])
    worker = stage.worker()
    stage.settle(worker)
    now = round(time.time() * 1_000)
    other = THEN if "before" in config else now + 10**10
    before, odd = [stamped(1, now), stamped(2, now)], [stamped(number, other) for number in range(4, 4 + refused)]
    dead = OutputRecord(9, Channel.DEAD_LETTERS, b"unit", (), b"dead")
    worker.publish(stage.partitions[0], *before)
    worker.publish(stage.partitions[0], stamped(3, now), *odd, dead)
    left = stage.outputs()
    assert [each.value for each in left] == [b"%d" % number for number in range(1, 4 + refused)]
    assert [each.timestamp for each in left[:3]] == [now, now, now]
    assert all(now < each.timestamp < now + 3_600_000 for each in left[3:])
    assert [each.value for each in stage.outputs(Channel.DEAD_LETTERS)] == [b"dead"]


def stamped(number: int, timestamp: int) -> OutputRecord:
    return OutputRecord(number, Channel.NOTIFICATIONS, b"unit", (), b"%d" % number, prefix=OURS, timestamp=timestamp)


@pytest.mark.parametrize(("key", "value"), PARTS[:2] + PARTS[4:6])
def test_a_dead_letter_is_requeued_as_it_came(stage: KafkaStage, key: bytes | None, value: bytes | None) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    letter = DeadLetter(Record(Origin(first, 7), value, key, HEADERS), DeadLetterReason.NO_SEQUENCE, "no", THEN)
    worker.publish(first, from_pending(to_pending(output_record(1, letter, 0))))
    (outcome,) = requeued(stage)
    assert outcome.problem is None
    (sent,) = stage.inputs()
    *headers, mark = sent.headers
    assert (sent.partition, sent.key, sent.value, tuple(headers), mark[0]) == (0, key, value, HEADERS, "requeued-from")


def requeued(stage: KafkaStage) -> list[Any]:
    with closing(KafkaDeadLetterStore(stage.settings(), AskedFor(), lambda: Signature("me", "2026-03-28T23:33:55Z"))) as store:
        assert list(store.begin()) == []
        return list(store.requeue(list(store.letters())))
