"""What the ledger costs beside many rows: a claim, a tick of a scheduler while the gate is shut, and the intake of a file."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text

from benchmarks._delivery.stage import (
    JOB,
    RECEIVER,
    Database,
    Run,
    WrongResult,
    new_run,
    take_in,
    write_notifications,
)
from notification_service.delivery.core.answers import Done, Suspended
from notification_service.delivery.core.gate import Gate, GateState
from notification_service.delivery.core.jobs import Claim, Item
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.gates import lock_gate, write_gate
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Step
from notification_service.wiring.delivery.sources import open_feed, source_of_files

INTAKE_GOAL = 5_000
"""The goal for rows per second."""

FLAT = 1.5
"""The goal for the cost beside the most rows, of that beside the fewest."""

_AT_ONCE = 20
_FILLED = 100_000
_FILLER = "filler"
_OWNER = "benchmark"
_NEVER = 86_400_000
_SMALL = b"x" * 100
"""The value of the rows that are only there: ten million of them fit on a disk."""

_NUMBERS = {
    "sqlite": "with recursive n(i) as (select :first union all select i + 1 from n where i < :last)",
    "postgresql": "with n(i) as (select generate_series(cast(:first as bigint), cast(:last as bigint)))",
}
_ROWS = (
    "insert into delivery_row (receiver, job, key, dedup, notification_id, position, headers, value, status, step, is_head,"
    " due_at, epoch, attempts, questions, is_late, taken_at, ended_at)"
    " {numbers} select :receiver, :job, 'filler-' || i, 'filler-' || i, 'filler-' || i, 'p@' || i, :headers, :value, :status,"
    " 'deliver', :is_head, :now, 1, 0, 0, false, :now, cast(:ended_at as bigint) from n"
)
_KEYS = "insert into delivery_key (receiver, key) {numbers} select :receiver, 'filler-' || i from n"


class Costs(NamedTuple):
    """Medians in ms. For claims: of a claim of 20 rows, and of writing their outcomes. For ticks: of a tick that finds the gate
    shut, and of one that claims the probe."""

    first: float
    second: float


def claims(database: Database, sizes: Sequence[int], rounds: int) -> Iterator[tuple[int, Costs]]:
    """Yield the cost of claims beside so many ended rows; `sizes` ascend.

    Raises:
        WrongResult: A claim did not find its rows.
    """
    run, filled = new_run(database), 0
    with run.ledger() as ledger:
        for size in sizes:
            _fill(ledger, range(filled, size), "processed")
            filled = size
            yield size, _claims(ledger, size, rounds)


def ticks(database: Database, sizes: Sequence[int], rounds: int) -> Iterator[tuple[int, Costs]]:
    """Yield the cost of ticks while the gate is shut and so many rows wait, each the head of a unit; `sizes` ascend.

    Raises:
        WrongResult: A shut gate let a row through, or a due probe none.
    """
    run, filled = new_run(database), 0
    with run.ledger() as ledger:
        for size in sizes:
            _fill(ledger, range(filled, size), "ready")
            filled = size
            yield size, _ticks(ledger, rounds)


class Intake(NamedTuple):
    """Seconds of an intake, and of reading and decoding the same file alone."""

    whole: float
    reading: float


def intake(database: Database, count: int, rounds: int) -> Intake:
    """Return the best round.

    Raises:
        WrongResult: A row is missing.
    """
    file = database.directory / "intake.jsonl"
    write_notifications(file, count)
    return Intake(
        min(_take_in(new_run(database), file, count) for _ in range(rounds)),
        min(_read(new_run(database), file, count) for _ in range(rounds)),
    )


def _claims(ledger: Ledger, size: int, rounds: int) -> Costs:
    job = f"{JOB}-{size}"
    ledger.start_job(job, RECEIVER, "none", "benchmark")
    opened = ledger.open_intake(job, _OWNER)
    assert opened is not None
    for first in range(0, rounds * _AT_ONCE, 2_000):
        numbers = range(first, min(first + 2_000, rounds * _AT_ONCE))
        items = [Item(f"{job}-{each}", f"{job}-{each}", b"{}", (), f"p@{each}", f"{job}-{each}") for each in numbers]
        ledger.take_in(opened, RECEIVER, Portion(items, {"p": numbers.stop}, seals=numbers.stop == rounds * _AT_ONCE))
    claiming, finishing = list[float](), list[float]()
    for _ in range(rounds):
        claimed = _timed(claiming, lambda: _claim(ledger, _AT_ONCE))
        _timed(finishing, lambda claimed=claimed: ledger.finish(RECEIVER, [ClaimResult(each, Done()) for each in claimed]))
    found = ledger.find_job(job)
    if found is None or found.processed != rounds * _AT_ONCE:
        raise WrongResult(f"claims beside {size} rows: {found}")
    return Costs(median(claiming), median(finishing))


def _ticks(ledger: Ledger, rounds: int) -> Costs:
    shut, probing = list[float](), list[float]()
    for _ in range(rounds):
        _shut(ledger, _NEVER)
        if _timed(shut, lambda: _claim(ledger, _AT_ONCE)):
            raise WrongResult("a row was claimed although the gate is shut")
        _shut(ledger, 0)
        probes = _timed(probing, lambda: _claim(ledger, _AT_ONCE))
        if len(probes) != 1:
            raise WrongResult(f"{len(probes)} probes")
        ledger.finish(RECEIVER, [ClaimResult(probes[0], Suspended("asleep"))])
    return Costs(median(shut), median(probing))


def _claim(ledger: Ledger, wanted: int) -> list[Claim]:
    return ledger.claim(RECEIVER, Step.DELIVER, _OWNER, wanted).claims


def _timed(into: list[float], act: Callable[[], list[Claim]]) -> list[Claim]:
    began = time.perf_counter()
    found = act()
    into.append((time.perf_counter() - began) * 1_000)
    return found


def _shut(ledger: Ledger, after_ms: int) -> None:
    with ledger.database.write() as connection:
        lock_gate(connection, RECEIVER)
        now = ledger.database.now(connection)
        gate = Gate(state=GateState.SHUT, reason="asleep", since=now, pause_ms=_NEVER, probe_at=now + after_ms)
        write_gate(connection, RECEIVER, gate)


def _fill(ledger: Ledger, numbers: range, status: str) -> None:
    """Add rows of other units. PostgreSQL has then done what follows by itself after so many new rows."""
    job = f"{_FILLER}-{numbers.start}"
    ledger.start_job(job, RECEIVER, "none", "benchmark")
    is_ended = status == "processed"
    for first in range(numbers.start, numbers.stop, _FILLED):
        last = min(first + _FILLED, numbers.stop) - 1
        with ledger.database.write() as connection:
            now = ledger.database.now(connection)
            told = {"first": first, "last": last, "receiver": RECEIVER, "job": job, "headers": b"[]", "value": _SMALL, "now": now}
            told |= {"status": status, "is_head": not is_ended, "ended_at": now if is_ended else None}
            connection.execute(_statement(connection, _KEYS), told)
            connection.execute(_statement(connection, _ROWS), told)
            count = text("update delivery_job set ingested = ingested + :new, processed = processed + :ended where id = :job")
            connection.execute(count, {"new": last - first + 1, "ended": (last - first + 1) * is_ended, "job": job})
    if not ledger.database.is_sqlite:
        with ledger.database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("set statement_timeout = 0"))
            connection.execute(text("vacuum (analyze) delivery_row"))
            connection.execute(text("checkpoint"))


def _statement(connection: Connection, statement: str) -> TextClause:
    return text(statement.format(numbers=_NUMBERS[connection.dialect.name]))


def _take_in(run: Run, file: Path, count: int) -> float:
    with run.ledger() as ledger:
        ledger.jobs()  # The tables are made.
        began = time.perf_counter()
        take_in(run, ledger, file)
        spent = time.perf_counter() - began
        job = ledger.find_job(JOB)
    if job is None or job.expected != count:
        raise WrongResult(f"{count} notifications were to be taken in: {job}")
    return spent


def _read(run: Run, file: Path, count: int) -> float:
    configuration = run.configuration()
    feed = open_feed(configuration, source_of_files(configuration, [file]), dict(configuration.delivery.receivers)[RECEIVER])
    began, found, positions = time.perf_counter(), 0, dict[str, int]()
    while True:
        portion = feed.read(positions, 2_000)
        found += len(portion.items)
        positions |= portion.positions
        if portion.is_end:
            assert found == count
            return time.perf_counter() - began
