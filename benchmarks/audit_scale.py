"""How fast an audit is, and what memory it needs: `python -m benchmarks.audit_scale [--help]`; `make audit` installs Spark.

The input is an archive of `--envelopes` in Parquet, with the columns of the topics' archive: one real run of the service on a few
hundred payments, and variations of it. Each variation has other names, notification ids and positions; the audit checks that they
are as the service would have made them. `--one-unit` adds one unit of so many envelopes. The audit must find no deviation. Then
one notification of the last run is omitted, and the audit must find exactly that.

The audit is compared with a bare read of the same archive by Spark. Memory excludes pages that a file backs: of the JVM (driver
and executor in one), of the driver's Python, and of all Python workers together.
"""

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._runner import ROOT, Case, Figures, Stopwatch, Watched, WrongResult, arguments, directory, measure, spark_options
from benchmarks._worker import CONFIGURATION, ENVELOPES_PER_UNIT, SEED, TOPIC, in_process, line_of, made, override, run_through
from guardian.headers import ENVELOPE_ID, NOTIFICATION_ID, SOURCE_POSITION
from notification_service.commands.audit import audit_settings
from notification_service.configuration.configuration import load
from resequencer.clock import Instant
from resequencer.notification import notification_id
from resequencer.record import Headers, Origin, Partition

INPUT, OUTPUT = "input", "output"
UNITS = 250
PARTITIONS = 4
_NAME = b"sim-%d-" % SEED
_BATCH = 2_000
_SCHEMA = "partition int, offset long, timestamp long, key binary, value binary, headers array<struct<key:string,value:binary>>"


class Row(NamedTuple):
    """A row with the columns of the archive."""

    partition: int
    offset: int
    timestamp: Instant
    key: bytes
    value: bytes
    headers: Headers


class Published(NamedTuple):
    """A notification, with the offset of its record and the index of its process object."""

    row: Row
    record: int
    index: int

    def moved(self, partition: int, unit: bytes, envelope: bytes, record: int, offset: int) -> Row:
        """Return the notification as the service makes it of an envelope of that name at that place."""
        headers = dict(self.row.headers)
        identity = notification_id(unit.decode(), envelope.decode(), self.index).encode()
        value = self.row.value.replace(headers[NOTIFICATION_ID], identity, 1)
        position = str(Origin(Partition(TOPIC, partition), record)).encode()
        headers |= {NOTIFICATION_ID: identity, ENVELOPE_ID: envelope, SOURCE_POSITION: position}
        return Row(partition % PARTITIONS, offset, self.row.timestamp, unit, value, tuple(headers.items()))


class Run(NamedTuple):
    """The input records and the notifications of a run, each in order."""

    received: list[Row]
    published: list[Published]

    def rows(self, side: str, number: int) -> Iterator[Row]:
        """Yield the rows of the variation with this number."""
        name, partition, turn = b"run-%d-" % number, number % PARTITIONS, number // PARTITIONS
        before = turn * len(self.received)
        if side == INPUT:
            for row in self.received:
                key, value = row.key.replace(_NAME, name), row.value.replace(_NAME, name)
                yield row._replace(partition=partition, offset=before + row.offset, key=key, value=value)
            return
        for offset, each in enumerate(self.published, turn * len(self.published)):
            unit, envelope = (text.replace(_NAME, name) for text in (each.row.key, dict(each.row.headers)[ENVELOPE_ID]))
            yield each.moved(partition, unit, envelope, before + each.record, offset)

    def rows_of_one_unit(self, side: str, envelopes: int) -> Iterator[Row]:
        """Yield the rows of one unit in a partition of its own: the payment, then envelopes that come in swapped pairs."""
        first = next(each for each in self.published if _is_first(self.received[each.record].value))
        of_unit = (each for each in self.published if each.row.key == first.row.key)
        second = next(each for each in of_unit if b'"MsgId":"' not in self.received[each.record].value)
        row = self.received[second.record]
        sequence, identity = _after(row.value, b'"sequence":', b","), _after(row.value, b'"uniqueId":"', b'"')
        if side == INPUT:
            yield self.received[first.record]._replace(partition=PARTITIONS, offset=0)
            for offset in range(1, envelopes):
                number = min(offset + 2, envelopes) if offset % 2 else offset
                value = row.value.replace(b'"sequence":%b,' % sequence, b'"sequence":%d,' % number)
                yield row._replace(partition=PARTITIONS, offset=offset, value=value.replace(identity, b"one|%d" % number))
            return
        yield first.moved(PARTITIONS, first.row.key, dict(first.row.headers)[ENVELOPE_ID], 0, 0)
        for number in range(2, envelopes + 1):
            record = number - 2 if number % 2 else min(number, envelopes - 1)
            yield second.moved(PARTITIONS, second.row.key, b"one|%d" % number, record, number - 1)


def _is_first(value: bytes) -> bool:
    return b'"sequence":1,' in value and b'"MsgId":"' in value


def _after(value: bytes, opening: bytes, end: bytes) -> bytes:
    return value.partition(opening)[2].partition(end)[0]


def one_run() -> Run:
    """Run the simulator's payments, out of order and some of them twice, through the service's own core."""
    with made(round(UNITS * ENVELOPES_PER_UNIT), "--window", 200) as workload, directory() as place:
        lines, began = workload.read(), time.time_ns() // 1_000_000
        cycle, transport = in_process(lines, place)
        run_through(cycle, len(lines))
    offsets = dict(zip(accumulate(map(len, lines), initial=0), range(len(lines)), strict=False))
    received = [_row(each, offset, began) for offset, each in enumerate(lines)]
    return Run(received, [_published(_row(each, 0, began + 1_000), offsets) for each in transport.output])


def _row(encoded: bytes, offset: int, at: Instant) -> Row:
    line = line_of(encoded)
    assert line.key is not None
    return Row(0, offset, at, line.key, line.value, line.headers)


def _published(row: Row, offsets: dict[int, int]) -> Published:
    headers = dict(row.headers)
    origin, names = Origin.find(headers[SOURCE_POSITION].decode()), (row.key.decode(), headers[ENVELOPE_ID].decode())
    assert origin is not None
    index = next(at for at in range(100) if notification_id(*names, at).encode() == headers[NOTIFICATION_ID])
    return Published(row, offsets[origin.offset], index)


class Archive(NamedTuple):
    """An archive of so many runs, and one unit of so many envelopes, in a directory."""

    run: Run
    runs: int
    one_unit: int
    directory: Path

    @property
    def envelopes(self) -> int:
        return self.runs * len(self.run.received) + self.one_unit

    def write(self, spark: Any) -> None:
        """Write the runs; the one unit comes after the last of them."""
        for side in (INPUT, OUTPUT):
            count = self.runs + bool(self.one_unit)
            numbers = spark.range(0, count, 1, min(count, max(2, count // 64)))
            numbers.mapInArrow(partial(self._written, side), _SCHEMA).write.parquet(str(self.directory / side))

    def read(self, spark: Any) -> list[Any]:
        return [spark.read.schema(_SCHEMA).parquet(str(self.directory / side)) for side in (INPUT, OUTPUT)]

    def _written(self, side: str, batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                is_run = number < self.runs
                rows = self.run.rows(side, number) if is_run else self.run.rows_of_one_unit(side, self.one_unit)
                while taken := list(islice(rows, _BATCH)):
                    yield _batch(taken)


def _batch(rows: Sequence[Row]) -> Any:
    import pyarrow as pa

    *columns, headers = ([row[at] for row in rows] for at in range(6))
    named = pa.array(headers, pa.map_(pa.string(), pa.binary()))
    pairs = pa.StructArray.from_arrays([named.keys, named.items], ["key", "value"])
    kinds = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays([*arrays, pa.ListArray.from_arrays(named.offsets, pairs)], names=[*Row._fields])


def audit(spark: Any, archive: Archive, name: str, is_taken: Any = None, is_omitted: Any = None) -> Any:
    """Return the summary of an audit of all rows, or of those that are taken, and what it found."""
    from notification_service.jobs.audit.counting import summarize
    from notification_service.jobs.audit.job import audit_records
    from notification_service.jobs.audit.record_rows import Topics, record_rows
    from notification_service.jobs.audit.scopes import Scope

    received, published = archive.read(spark)
    if is_taken is not None:
        received, published = received.where(is_taken), published.where(is_taken).where(~is_omitted)
    topics = Topics(received, published, spark.createDataFrame([], _SCHEMA))
    configuration = load(CONFIGURATION, [override("run-directory", archive.directory)])
    scope = Scope({}, 2_400 * archive.envelopes, lambda judged_by: record_rows(topics, judged_by))
    settings = audit_settings(configuration, dict.fromkeys(range(16), 1 << 60))
    summary = summarize(audit_records(spark, scope, settings, archive.directory / name))
    return summary, {name: count for name, count in summary.counts.items() if count}


def check_that_a_loss_is_found(spark: Any, archive: Archive) -> None:
    """Audit the last run without one of its notifications."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere where Spark is.

    rows = list(archive.run.rows(OUTPUT, archive.runs - 1))
    gone, name = rows[len(rows) // 2], b"run-%d-" % (archive.runs - 1)
    is_gone = (F.col("partition") == gone.partition) & (F.col("offset") == gone.offset)
    _, found = audit(spark, archive, "robbed", F.startswith(F.col("key"), F.lit(name)), is_gone)
    if found != {"lost": 1}:
        raise WrongResult(f"with a notification omitted: {found or 'nothing found'}")


def bare_read(spark: Any, archive: Archive) -> Figures:
    watch = Stopwatch()
    for side in archive.read(spark):
        side.write.format("noop").mode("overwrite").save()
    return {"s": watch.spent().wall}


def audited(spark: Any, archive: Archive) -> Figures:
    with Watched() as watched, directory(archive.directory) as place:
        watch = Stopwatch()
        summary, found = audit(spark, archive, place.name)
        figures = watched.figures(watch.spent().wall, archive.envelopes, "envelope")
    if found or summary.open:
        raise WrongResult(f"deviations: {found}, {summary.open} open")
    return {**figures, "units": summary.units, "notifications": summary.notifications}


def main() -> None:
    chosen = arguments(__doc__, large={"envelopes": 10_000_000}, envelopes=100_000, one_unit=0)
    from notification_service.jobs.spark.session import spark_session

    os.environ["PYTHONPATH"] = str(ROOT)  # Spark's Python workers import this module.
    with directory() as place, spark_session("local[*]", spark_options(place)) as spark:
        run = one_run()
        archive = Archive(run, max(1, round(chosen.envelopes / len(run.received))), chosen.one_unit, place)
        archive.write(spark)
        size = sum(each.stat().st_size for each in place.rglob("*.parquet")) / 1e6
        print(f"{archive.envelopes:,} envelopes in {archive.runs:,} runs, {size:,.0f} MB", flush=True)
        bare, judged = partial(bare_read, spark, archive), partial(audited, spark, archive)
        measure(chosen, [Case("bare read", bare), Case("audit", judged, "bare read")], {"s": 1})
        check_that_a_loss_is_found(spark, archive)


if __name__ == "__main__":
    main()
