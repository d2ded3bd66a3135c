"""Applies the topics' size limits. A notification that is too large becomes a dead letter; a dead letter that is too large
is cut. Pure.

The outcome of an order that is too large loses the end of its text, then the order's own record. A fact is small, and none
may be missing or damaged: a topic that does not take it is refused.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256

from msgspec.structs import replace

from guardian.headers import (
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_VALUE_LENGTH,
    ORDER_ID,
    ORDER_OFFSET,
    ORDER_PARTITION,
    ORDER_RESULT,
    POSSIBLE_DUPLICATE,
    caused_by,
    cut_headers,
    dead_letter_headers,
    mark_of_dead_letter,
)
from guardian.ports import Channel, OutputRecord, TransportRefused
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.records import BEGINNING_BYTES, ProducerRecord, size_of
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.order import OrderUnreadable, decode_outcome, encode_outcome
from resequencer.record import Cut, Headers, Partition

_TEXTS = (10_000, 1_000, 200, 0)
"""To how many characters the text of an outcome is cut, until it fits."""

_OF_OUTCOMES = (ORDER_ID, ORDER_RESULT, ORDER_PARTITION, ORDER_OFFSET, POSSIBLE_DUPLICATE)


class SizeLimits:
    """`limits` gives the largest batch of each output topic in bytes. Records are measured uncompressed, to be safe."""

    def __init__(self, topics: KafkaTopics, limits: Mapping[str, int]) -> None:
        self._topics = topics
        self._limits = limits

    def fit(self, each: OutputRecord, now: Instant) -> ProducerRecord:
        """Return the record to send under this number.

        Raises:
            TransportRefused: It is a fact or a value, and its topic does not accept so many bytes; or its topic accepts not even
                the shortest dead letter, or the shortest outcome of an order.
        """
        record = self._producer_record(each)
        size, limit = size_of(record.key, record.headers, record.value), self._limits[record.topic]
        if size <= limit:
            return record
        if each.channel is Channel.VALUES:
            raise refused_for_size(record.topic, f"a value takes {size} bytes, but it accepts {limit}")
        if each.channel is Channel.FACTS:
            raise refused_for_size(record.topic, f"a fact takes {size} bytes, but it accepts {limit}")
        if each.channel is Channel.NOTIFICATIONS:
            problem = f"the notification takes {size} bytes, but {record.topic} accepts {limit}"
            return self.dead_letter(each, f"{problem}; raise its max.message.bytes and the producer's max.request.size", now)
        shorter = self._shorter_outcomes(record) if each.channel is Channel.ORDER_OUTCOMES else self._shorter(record)
        fitting = next((found for found in shorter if self._fits(found)), None)
        if fitting is None:
            what = "an outcome of an order" if each.channel is Channel.ORDER_OUTCOMES else "a dead letter"
            raise refused_for_size(record.topic, f"it accepts {limit} bytes, and the shortest form of {what} takes more")
        return fitting

    def dead_letter(self, each: OutputRecord, problem: str, now: Instant) -> ProducerRecord:
        """Return the dead letter of a notification that its topic does not accept."""
        ours = dead_letter_headers(DeadLetterReason.TOO_LARGE, problem, caused_by(each.headers, each.prefix), now)
        headers = (*each.headers, *ours, *mark_of_dead_letter(each.headers, each.prefix))
        return self.fit(OutputRecord(each.number, Channel.DEAD_LETTERS, each.key, headers, each.value), now)

    def _producer_record(self, each: OutputRecord) -> ProducerRecord:
        number = _partition_of(each) if each.channel is Channel.ORDER_OUTCOMES else each.partition
        value = None if each.channel is Channel.VALUES and not each.value else each.value
        lane = each.lane if each.key is None else None
        return ProducerRecord(self._topics.output(each.channel), each.key, each.headers, value, number, each.timestamp, lane)

    def _fits(self, record: ProducerRecord) -> bool:
        return size_of(record.key, record.headers, record.value) <= self._limits[record.topic]

    def _shorter_outcomes(self, record: ProducerRecord) -> Iterator[ProducerRecord]:
        """Yield ever shorter records of an outcome. Its readers can decode each of them but the last, which has no value."""
        with suppress(OrderUnreadable):
            outcome = decode_outcome(record.value or b"")
            shorter = [replace(outcome, text=outcome.text[:characters]) for characters in _TEXTS]
            for each in (*shorter, *(replace(each, order=None) for each in shorter)):
                yield record._replace(value=encode_outcome(each))
        ours = tuple((name, value[:100]) for name, value in record.headers if name in _OF_OUTCOMES)
        yield record._replace(key=None, headers=ours, value=b"")

    def _shorter(self, dead_letter: ProducerRecord) -> Iterator[ProducerRecord]:
        """Yield ever shorter records: first with less of the value, then without the record's own headers, then without key."""
        value = dead_letter.value or b""
        cut = dead_letter._replace(headers=_with_cut(dead_letter.headers, value))
        length = self._limits[dead_letter.topic] - size_of(cut.key, cut.headers, b"")
        yield cut._replace(value=value[: max(0, min(length, BEGINNING_BYTES))])
        ours = tuple(each for each in cut.headers if each[0].startswith(DEAD_LETTER_PREFIX) or each[0] == POSSIBLE_DUPLICATE)
        bare = cut._replace(headers=ours, value=b"")
        yield bare
        yield bare._replace(key=None)
        yield bare._replace(key=None, headers=tuple((name, value[:200]) for name, value in ours))


def refused_for_size(topic: str, problem: str) -> TransportRefused:
    """Return the error for a topic whose limit is too low for what it must take."""
    return TransportRefused(f"topic {topic}", f"{problem}. Raise its max.message.bytes and the producer's max.request.size")


def _partition_of(outcome: OutputRecord) -> int | None:
    """Return the partition that the outcome of an order goes to: that of the input partition whose owner executed it."""
    names = [value.decode(errors="replace") for name, value in outcome.headers if name == ORDER_PARTITION]
    named = Partition.find(names[0]) if names else None
    return None if named is None else named.number


def _with_cut(headers: Headers, value: bytes) -> Headers:
    """Add the length and the digest of the whole value; return the headers unchanged if the value was cut before."""
    if any(name == DEAD_LETTER_VALUE_LENGTH for name, _ in headers):
        return headers
    return (*headers, *cut_headers(Cut(len(value), sha256(value).hexdigest())))
