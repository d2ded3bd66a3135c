"""Makes lessons of archived records, in Spark's tasks: decodes records and replays units with the service's own code."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from notification_service.events.decoding import DecodingSettings, EnvelopeDecoder
from notification_service.jobs.lookups.unit_waits import Lesson, UnitWaits, lesson_context, rounded_up
from notification_service.jobs.spark.arrow_rows import Batches, Step, batch_of, cells_of
from notification_service.jobs.spark.job_settings import LearningSettings
from notification_service.lookups.shapes import ANY, LONGEST_KEY_BYTES, key_of
from resequencer.envelope import DataEnvelope, Refusal
from resequencer.record import Headers, Origin, Partition, Record
from resequencer.strategies.registry import make_strategy
from resequencer.turn.turn import TurnContext

WAIT, EVENTS, READ, REFUSED, TIMELESS = "wait", "events", "read", "refused", "timeless"
"""The kinds of lessons: a wait of a flow, a unit's number of envelopes in a flow, a unit's number of records, a record that is no
envelope, and an envelope without a timestamp."""

ARRIVED = pa.schema(
    [("partition", pa.int32()), ("unit", pa.string()), ("offset", pa.int64()), ("at", pa.int64()), ("payload", pa.binary())]
)
LESSONS = pa.schema([("kind", pa.string()), ("entity", pa.string()), ("flow", pa.string()), ("number", pa.int64())])
_BATCH_ROWS = 5_000

_Row = tuple[str, str, str, int]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DataEnvelope).decode


class _Arrived(NamedTuple):
    """A decoded record. `unit` is None if nothing can be learned; `payload` is None too if the record is no envelope."""

    partition: int
    unit: str | None
    offset: int
    at: int
    payload: bytes | None


def arrivals(settings: LearningSettings) -> Step:
    """Return the step from the archive's columns to `ARRIVED`."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        strategy = make_strategy(settings.strategy)
        decoder = EnvelopeDecoder(DecodingSettings(strategy.needs_sequence, settings.max_value_bytes))
        rows = (_arrived(row, decoder, settings) for batch in batches for row in batch.to_pylist())
        yield from _batches(rows, ARRIVED)

    return read


def lessons(settings: LearningSettings) -> Step:
    """Return the step from `ARRIVED` to `LESSONS`. Rows come by unit and offset; a large unit costs time, not memory."""

    def learn(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = lesson_context(make_strategy(settings.strategy))
        yield from _batches(_lessons(map(_Arrived._make, cells_of(batches)), context), LESSONS)

    return learn


def _arrived(row: dict[str, Any], decoder: EnvelopeDecoder, settings: LearningSettings) -> _Arrived:
    headers: Headers = tuple((each["key"], each["value"] or b"") for each in row["headers"] or ())
    origin = Origin(Partition(settings.topic, row["partition"]), row["offset"])
    decoded = decoder.decode(Record(origin, row["value"] or b"", headers=headers))
    at = -1 if row["timestamp"] is None else row["timestamp"]
    if isinstance(decoded, Refusal):
        return _Arrived(row["partition"], None, row["offset"], at, None)
    if at < 0:  # -1 means no timestamp.
        return _Arrived(row["partition"], None, row["offset"], at, b"")
    return _Arrived(row["partition"], decoded.unit, row["offset"], at, _encode(_lean(decoded, settings)))


def _lean(envelope: DataEnvelope, settings: LearningSettings) -> DataEnvelope:
    """Drop the parts that no built-in strategy looks at; a user's own may look at bodies."""
    bare = msgspec.structs.replace(envelope, record=Record(envelope.record.origin, b""), process_objects=())
    if ":" in settings.strategy.strategy:
        return msgspec.structs.replace(bare, process_objects=envelope.process_objects)
    return msgspec.structs.replace(
        bare,
        mds_objects=tuple(msgspec.structs.replace(each, body=b"") for each in envelope.mds_objects),
        pds_objects=tuple(msgspec.structs.replace(each, body=b"") for each in envelope.pds_objects),
        custom_objects=tuple(msgspec.structs.replace(each, body=b"") for each in envelope.custom_objects),
    )


def _lessons(rows: Iterable[_Arrived], context: TurnContext) -> Iterator[_Row]:
    for (_, unit), of_unit in groupby(rows, _whose):
        if unit is None:
            yield from ((REFUSED if row.payload is None else TIMELESS, ANY, "", 1) for row in of_unit)
        else:
            yield from _of_unit(UnitWaits(unit, context), of_unit)


def _of_unit(waits: UnitWaits, rows: Iterable[_Arrived]) -> Iterator[_Row]:
    read = 0
    for row in rows:
        assert row.payload is not None
        read += 1
        for each in waits.arrive(_decode(row.payload), row.at):
            if _has_a_key(each):
                yield WAIT, each.entity, each.flow, rounded_up(each.number)
    yield from ((EVENTS, *each) for each in waits.events() if _has_a_key(each))
    yield READ, ANY, "", read


def _has_a_key(lesson: Lesson) -> bool:
    """Return whether the key is short enough to be looked up; no profile is learned for a longer one."""
    return len(key_of(lesson.entity, lesson.flow)) <= LONGEST_KEY_BYTES


def _whose(row: _Arrived) -> tuple[int, str | None]:
    return row.partition, row.unit


def _batches(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while taken := list(islice(rows, _BATCH_ROWS)):
        yield batch_of(taken, schema)
