"""Learns completion profiles from the archive."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from notification_service.events.settings import decoding_settings
from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.spec import FLAW, LINE, PLACE, TEXT
from notification_service.jobs.spark.counted_write import Batches, Step, batch_of, cells_of, spark_schema, write_rows
from notification_service.jobs.spark.job_settings import LearningSettings, SourceSettings
from notification_service.lookups.shapes import ANY, LONGEST_KEY_BYTES, key_of
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS, PaymentData
from notification_service.payments.strategies import make_strategy
from resequencer.clock import Instant
from resequencer.event import Event, Refusal
from resequencer.handler import Handled, Marks
from resequencer.record import Headers, Origin, Partition, Record
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy
from resequencer.turn.decide import take_turn
from resequencer.turn.turn import TurnContext

_MAX_FLOWS = 256
"""The maximum number of flows, by entity, that are counted in one unit; further ones are ignored."""


class Lesson(NamedTuple):
    """`entity` is a processing entity or `ANY`; `number` counts milliseconds or envelopes."""

    entity: str
    flow: str
    number: int


class _Idle:
    """A handler that does nothing: its result does not change when envelopes are handled."""

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        del envelope, data, marks, now
        return Handled()


def lesson_context(strategy: Strategy) -> TurnContext:
    """Return a context without deadlines: the lesson is how long a deadline would have had to be."""
    return TurnContext(strategy, _Idle(), LATEST_OBJECTS, ResequencerSettings(), Random(0))  # noqa: S311 - Never used: nothing is retried.


class UnitWaits:
    """Replays one unit with the service's own code. Call `arrive` for each envelope in order of arrival."""

    def __init__(self, unit: str, context: TurnContext) -> None:
        self._context = context
        self._unit = context.new_unit(unit)
        self._now: Instant = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def arrive(self, envelope: DataEnvelope, at: Instant) -> Iterator[Lesson]:
        """Replay an arrival; yield how long the oldest stashed envelope waited if this arrival ends its wait.

        Instants before the latest one count as the latest one.
        """
        self._now = max(self._now, at)
        oldest = self._unit.oldest
        turn = take_turn(self._unit, (envelope,), (), self._now, self._context)
        if turn.handled or turn.stashed:  # A duplicate is neither.
            self._count(envelope)
        # A stash that a bound releases has not waited to its end, so it teaches nothing.
        if oldest is not None and not turn.releases and self._unit.oldest is not oldest:
            for entity in _entities(oldest.envelope):
                yield Lesson(entity, oldest.envelope.flow, self._now - oldest.stashed_at)

    def events(self) -> Iterator[Lesson]:
        """Yield the number of envelopes of each flow; call it after the last arrival."""
        for (entity, flow), count in self._counts.items():
            yield Lesson(entity, flow, count)

    def _count(self, envelope: DataEnvelope) -> None:
        for entity in _entities(envelope):
            if (entity, envelope.flow) in self._counts or len(self._counts) < _MAX_FLOWS:
                self._counts[entity, envelope.flow] += 1


def _entities(envelope: Event) -> tuple[str, ...]:
    return (ANY,) if envelope.entity is None else (envelope.entity, ANY)


def rounded_up(number: int) -> int:
    """Round up to three digits: few different numbers can be counted exactly, and no deadline becomes too short."""
    unit = int("1" + "0" * (len(str(number)) - 3))
    return -(-number // unit) * unit


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
        decoder = EnvelopeDecoder(decoding_settings(strategy, settings.strategy.first_sequence, settings.max_value_bytes))
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
    """Drop what no built-in strategy looks at; a user's own may look at the objects."""
    bare = msgspec.structs.replace(envelope, record=Record(envelope.record.origin, b""))
    if ":" in settings.strategy.strategy:
        return bare
    return msgspec.structs.replace(bare, mds_objects=(), pds_objects=(), custom_objects=(), process_objects=())


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


_COLUMNS = ("processing_entity", "process_flow", "usual_ms", "latest_ms", "late", "usual_events", "most_events")
_NEEDED = ("partition", "offset", "timestamp", "value", "headers")
_DAY_MS = 86_400_000


class Learned(NamedTuple):
    """Rows as described in `jobs.lookups.rows`, without `source`; and a remark on the records they were learned from."""

    rows: DataFrame
    remark: str


def learn_profiles(
    archived: DataFrame, source: SourceSettings, settings: LearningSettings, now: Instant, staged: Path
) -> Learned:
    """Learn from the archive's records, which are read once; the lessons are kept in `staged`.

    Raises:
        JobRefused: No record is an envelope with a timestamp.
        NotShared: The tasks do not share the directory.
    """
    is_timeless = F.col("timestamp").isNull() | (F.col("timestamp") < 0)
    recent = archived.where(is_timeless | (F.col("timestamp") >= now - source.days * _DAY_MS)).select(*_NEEDED)
    arrived = recent.mapInArrow(arrivals(settings), spark_schema(ARRIVED))
    by_unit = arrived.repartition("partition", "unit").sortWithinPartitions("partition", "unit", "offset")
    url = staged.absolute().as_uri()
    write_rows(_counted(by_unit.mapInArrow(lessons(settings), spark_schema(LESSONS))), url)
    counted = archived.sparkSession.read.parquet(url)
    total = F.sum(F.col("number") * F.col("count")).alias("total")
    totals = {row["kind"]: row["total"] for row in counted.groupBy("kind").agg(total).collect()}
    remark = _remark(source, totals.get(READ, 0), totals.get(REFUSED, 0), totals.get(TIMELESS, 0))
    return Learned(_shaped(_profiles(counted, source.least_late), source), remark)


def _remark(source: SourceSettings, read: int, refused: int, timeless: int) -> str:
    records = read + refused + timeless
    if records and not read:
        raise JobRefused(
            f"{source.place}: none of its {records:,} records of {source.days} days is an envelope with a timestamp; nothing can "
            "be learned from it, remove it from the sources of completion-profiles"
        )
    return f"records of {source.days} days: {records:,}; of these no envelopes: {refused:,}, without a timestamp: {timeless:,}"


def _counted(learned: DataFrame) -> DataFrame:
    """Count equal lessons. The result has few rows, since waits are rounded to three digits."""
    return learned.groupBy("kind", "entity", "flow", "number").agg(F.count("*").alias("count"))


def _profiles(counted: DataFrame, least_late: int) -> DataFrame:
    """Return exact profiles: equal numbers were counted before, so only few rows are sorted."""
    of_flow = Window.partitionBy("kind", "entity", "flow")
    so_far = of_flow.orderBy("number").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    of_flows = counted.where(F.col("kind").isin(WAIT, EVENTS))
    ranked = of_flows.select("*", F.sum("count").over(so_far).alias("so_far"), F.sum("count").over(of_flow).alias("all"))
    late = F.coalesce(F.sum(_of(WAIT, "count")), F.lit(0))
    usual_events = F.max(F.struct(_of(EVENTS, "count").alias("count"), _of(EVENTS, "number").alias("number")))
    return ranked.groupBy(F.col("entity").alias("processing_entity"), F.col("flow").alias("process_flow")).agg(
        _rank(1, 2).alias("usual_ms"),
        F.when(late >= least_late, _rank(999, 1_000)).alias("latest_ms"),
        late.alias("late"),
        usual_events["number"].alias("usual_events"),
        F.max(_of(EVENTS, "number")).alias("most_events"),
    )


def _of(kind: str, name: str) -> Column:
    return F.when(F.col("kind") == kind, F.col(name))


def _rank(part: int, whole: int) -> Column:
    """Return the smallest number that at least `part` of `whole` waits do not exceed."""
    reaches = (F.col("kind") == WAIT) & (F.col("so_far") * whole >= F.col("all") * part)
    return F.min(F.when(reaches, F.col("number")))


def _shaped(profiles: DataFrame, source: SourceSettings) -> DataFrame:
    return profiles.select(
        F.lit(source.place).alias(PLACE),
        F.lit(None).cast("long").alias(LINE),
        F.to_json(F.struct(*_COLUMNS)).alias(TEXT),
        F.lit(None).cast("string").alias(FLAW),
        *[F.col(name).cast("string").alias(name) for name in _COLUMNS],
    )
