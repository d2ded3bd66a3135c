"""From archived records to lessons, in the tasks: a record is decoded by the service's own decoder, a unit runs its own code."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from domain.decoding import DecodingSettings, EnvelopeDecoder, Refusal
from domain.envelope import DataEnvelope
from domain.record import Headers, Origin, Partition, Record
from enrichment.shapes import ANY, LONGEST_KEY_BYTES, key_of
from pipeline.lookups.unit_waits import Lesson, UnitWaits, lesson_context, rounded_up
from pipeline.spark.arrow_rows import Batches, Step, batch_of, cells_of
from pipeline.spark.job_settings import LearningSettings
from resequencer.strategies.registry import make_strategy
from resequencer.turn_context import TurnContext

WAIT, EVENTS, READ, REFUSED, TIMELESS = "wait", "events", "read", "refused", "timeless"
"""The kinds of lessons: of a flow, of a unit (how many records it was), of a record that is no envelope or does not say when it
came."""

ARRIVED = pa.schema(
    [("partition", pa.int32()), ("unit", pa.string()), ("offset", pa.int64()), ("at", pa.int64()), ("payload", pa.binary())]
)
LESSONS = pa.schema([("kind", pa.string()), ("entity", pa.string()), ("flow", pa.string()), ("number", pa.int64())])
_BATCH_ROWS = 5_000

_Row = tuple[str, str, str, int]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DataEnvelope).decode


class _Arrived(NamedTuple):
    """A record that teaches nothing has no unit, and no payload either if it is no envelope."""

    partition: int
    unit: str | None
    offset: int
    at: int
    payload: bytes | None


def arrivals(settings: LearningSettings) -> Step:
    """From the columns of the archive to `ARRIVED`."""

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        strategy = make_strategy(settings.strategy)
        decoder = EnvelopeDecoder(DecodingSettings(strategy.needs_sequence, settings.max_value_bytes))
        rows = (_arrived(row, decoder, settings) for batch in batches for row in batch.to_pylist())
        yield from _batches(rows, ARRIVED)

    return read


def lessons(settings: LearningSettings) -> Step:
    """From `ARRIVED`, unit by unit in the order of offsets, to `LESSONS`. A unit's size costs time, not memory."""

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
    if at < 0:  # -1 stands for no instant at all.
        return _Arrived(row["partition"], None, row["offset"], at, b"")
    return _Arrived(row["partition"], decoded.unit, row["offset"], at, _encode(_lean(decoded, settings)))


def _lean(envelope: DataEnvelope, settings: LearningSettings) -> DataEnvelope:
    """Without what no strategy of the service looks at; a user's own may look at bodies."""
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
    """Names that are too long to be looked up are nobody's."""
    return len(key_of(lesson.entity, lesson.flow)) <= LONGEST_KEY_BYTES


def _whose(row: _Arrived) -> tuple[int, str | None]:
    return row.partition, row.unit


def _batches(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while taken := list(islice(rows, _BATCH_ROWS)):
        yield batch_of(taken, schema)
