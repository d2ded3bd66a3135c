"""Applies the topics' size limits. A notification that is too large becomes a dead letter; one that is too large is cut. Pure."""

from collections.abc import Iterator, Mapping
from hashlib import sha256

from connectors.kafka.core.records import BEGINNING_BYTES, ProducerRecord, size_of
from connectors.kafka.core.topic_names import KafkaTopics
from connectors.port import Channel, OutputRecord
from domain.clock import Instant
from domain.dead_letter import DeadLetterReason
from domain.headers import (
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_VALUE_LENGTH,
    ORDER_PARTITION,
    POSSIBLE_DUPLICATE,
    SOURCE_POSITION,
    cut_headers,
    dead_letter_headers,
)
from domain.record import Cut, Headers, Partition


class SizeLimits:
    """`limits` gives the largest batch of each output topic in bytes. Records are measured uncompressed, to be safe."""

    def __init__(self, topics: KafkaTopics, limits: Mapping[str, int]) -> None:
        self._topics = topics
        self._limits = limits

    def fit(self, each: OutputRecord, now: Instant) -> ProducerRecord:
        """Return the record to send under this number."""
        record = self._producer_record(each)
        size, limit = size_of(record.key, record.headers, record.value), self._limits[record.topic]
        if size <= limit:
            return record
        if each.channel is Channel.NOTIFICATIONS:
            problem = f"the notification takes {size} bytes, but {record.topic} accepts {limit}"
            return self.letter(each, f"{problem}; raise its max.message.bytes and the producer's max.request.size", now)
        return next(shorter for shorter in self._shorter(record) if self._fits(shorter))

    def letter(self, each: OutputRecord, problem: str, now: Instant) -> ProducerRecord:
        """Return the dead letter of a notification that its topic does not accept."""
        source = next((value for name, value in each.headers if name == SOURCE_POSITION), b"")
        ours = dead_letter_headers(DeadLetterReason.TOO_LARGE, problem, source, now)
        return self.fit(OutputRecord(each.number, Channel.DEAD_LETTERS, each.key, (*each.headers, *ours), each.value), now)

    def _producer_record(self, each: OutputRecord) -> ProducerRecord:
        number = _partition_of(each) if each.channel is Channel.ORDER_OUTCOMES else None
        return ProducerRecord(self._topics.output(each.channel), each.key, each.headers, each.value, number)

    def _fits(self, record: ProducerRecord) -> bool:
        return size_of(record.key, record.headers, record.value) <= self._limits[record.topic]

    def _shorter(self, letter: ProducerRecord) -> Iterator[ProducerRecord]:
        """Yield ever shorter records: first with less of the value, then without the record's own headers, then without key."""
        cut = letter._replace(headers=_with_cut(letter.headers, letter.value))
        room = self._limits[letter.topic] - size_of(cut.key, cut.headers, b"")
        yield cut._replace(value=letter.value[: max(0, min(room, BEGINNING_BYTES))])
        ours = tuple(each for each in cut.headers if each[0].startswith(DEAD_LETTER_PREFIX) or each[0] == POSSIBLE_DUPLICATE)
        bare = cut._replace(headers=ours, value=b"")
        yield bare
        yield bare._replace(key=None)
        yield bare._replace(key=None, headers=tuple((name, value[:200]) for name, value in ours))


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
