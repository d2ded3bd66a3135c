"""Decodes record batches so that a record that the client cannot decode does not affect its neighbours.

Brokers accept records for which kafka-python (3.0.12) gives up the whole batch: header names that are not UTF-8, attributes of
128 and more. Brokers also accept two records of one batch with the same offset; the client then returns both with it.
"""

from functools import cached_property, partial
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

from notification_service.connectors.kafka.core.records import RawHeaders, UndecodableHeaders


class _Content(NamedTuple):
    """The content of a record as far as it can be decoded. `place` is its offset within the batch; None if undecodable.

    `later_ms` is how much its timestamp is behind that of the batch's first record.
    """

    place: int | None
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    defects: tuple[str, ...] = ()
    later_ms: int = 0


class RecordBatch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python ships no types.
    """A batch of format 2. A damaged record gets `UndecodableHeaders`; if it is wholly undecodable, its bytes are its value.

    Raises CorruptRecordError if the start of the next record cannot be found.
    """

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self._next_place = self.base_offset
        # Offsets are unique, so this is the number of offsets that compaction has removed from the batch.
        self._max_ahead = self.last_offset_delta + 1 - self.records_count

    @cached_property
    def timestamp_type(self) -> int:
        """The client works this and the next one out for each record, which takes an eighth of the time of reading."""
        return int(super().timestamp_type)

    @cached_property
    def is_control_batch(self) -> bool:
        return bool(super().is_control_batch)

    def __next__(self) -> Any:
        at, start = self._next_record_index, self._pos
        try:
            record = super().__next__()
        except CorruptRecordError:
            if at >= self.records_count or self.is_control_batch:
                raise
            record = None
        if record is None or not self._is_in_place(record.offset, at):
            record = self._as_far_as_it_goes(at, start)
        self._next_place = record.offset + 1
        return record

    def _is_in_place(self, offset: int, at: int) -> bool:
        """Return whether the offset lies behind the previous record's and leaves room for those that follow."""
        return bool(self._next_place <= offset <= self.base_offset + at + self._max_ahead)

    def _as_far_as_it_goes(self, at: int, start: int) -> DefaultRecord:
        if self._max_ahead < 0:
            raise CorruptRecordError(f"the batch has {self.records_count} records but {self.last_offset_delta + 1} offsets")
        frame, self._pos = _framed(self._buffer, start)
        self._next_record_index = at + 1
        try:
            content = _read(frame)
        except (ValueError, IndexError) as error:
            content = _Content(None, None, frame, [], (f"it is no record of Kafka's format 2 ({error})",))
        offset, defects = self.base_offset + (content.place or 0), content.defects
        if content.place is None or not self._is_in_place(offset, at):
            if content.place is not None:
                defects += (f"its batch gives it offset {offset}, which belongs to another record",)
            offset = self._next_place
        headers = UndecodableHeaders(content.headers, "; ".join(defects)) if defects else content.headers
        is_appended = self.timestamp_type == self.LOG_APPEND_TIME
        at_ms = self.max_timestamp if is_appended else self.first_timestamp + content.later_ms
        return DefaultRecord(len(frame), offset, at_ms, self.timestamp_type, content.key, content.value, headers)


def _framed(buffer: Any, start: int) -> tuple[bytes, int]:
    """Return the bytes of the record that begins at `start`, and the start of the next one."""
    try:
        length, start = decode_varint(buffer, start)
    except (ValueError, IndexError) as error:
        raise CorruptRecordError(f"a record without a length: {error}") from error
    if not 0 <= length <= len(buffer) - start:
        raise CorruptRecordError(f"a record of {length} bytes, but only {len(buffer) - start} remain")
    return bytes(buffer[start : start + length]), start + length


def _read(frame: bytes) -> _Content:
    """Decode a record's bytes. Raises ValueError or IndexError if they are no record."""
    later_ms, at = decode_varint(frame, 1)  # The attributes come before it.
    place, at = decode_varint(frame, at)
    key, at = _bytes(frame, at)
    value, at = _bytes(frame, at)
    count, at = decode_varint(frame, at)
    headers, defects = RawHeaders(), dict[str, None]()
    if count < 0:
        raise ValueError(f"{count} headers")
    for _ in range(count):
        raw, at = _bytes(frame, at)
        data, at = _bytes(frame, at)
        if raw is None:
            raise ValueError("a header without a name")
        name = raw.decode("utf-8", "backslashreplace")
        if name.encode() != raw:
            defects[f"the name of a header is not UTF-8: {name[:80]}"] = None
        headers.append((name, data))
    if at != len(frame):
        raise ValueError(f"{len(frame) - at} bytes after its headers")
    return _Content(place, key, value, headers, tuple(defects), later_ms)


def _bytes(frame: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(frame, at)
    if length > len(frame) - at:
        raise ValueError(f"a part of {length} bytes, but only {len(frame) - at} remain")
    return (frame[at : at + length], at + length) if length >= 0 else (None, at)


_FOR_A_PERSON = (OffsetOutOfRangeError, TopicAuthorizationFailedError)
"""Errors of one partition that stop the reading of all partitions."""


class _Records(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python ships no types.
    """The fetched records of a partition, up to the first unreadable one.

    kafka-python 3.0.12 raises that error instead of returning other partitions' records, and the next call loops for ever.
    """

    def __init__(self, found: dict[TopicPartition, KafkaError], *fetched: Any, **options: Any) -> None:
        self._found = found
        super().__init__(*fetched, **options)

    def _unpack_records(self, tp: TopicPartition, *options: Any) -> Any:
        try:
            yield from super()._unpack_records(tp, *options)
        except Exception as error:  # noqa: BLE001 - A codec may raise anything on damaged bytes.
            self._found[tp] = error if isinstance(error, KafkaError) else CorruptRecordError(f"{type(error).__name__}: {error}")
            self.drain()


class Unreadable:
    """Makes a fetcher remember why a partition is unreadable, and continue with the other partitions."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._found: dict[TopicPartition, KafkaError] = {}
        self._parse_fetched_data = fetcher._parse_fetched_data  # noqa: SLF001 - The client offers no other way.
        fetcher._parse_fetched_data = self._parse  # noqa: SLF001
        fetcher.PartitionRecords = partial(_Records, self._found)

    def take(self) -> dict[TopicPartition, KafkaError]:
        """Return what was found since the last call, and reset it."""
        found = dict(self._found)
        self._found.clear()
        return found

    def _parse(self, completed: Any) -> Any:
        try:
            return self._parse_fetched_data(completed)
        except _FOR_A_PERSON:
            raise
        except KafkaError as error:
            self._found[completed.topic_partition] = error
            return None
