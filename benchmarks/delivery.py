"""What delivery costs: `python -m benchmarks.delivery [--postgresql] [--large] [--only deliveries]`.

Without `--postgresql` the ledger is SQLite; with it, it is PostgreSQL in addition: the project's own server, in a temporary
directory. Everything is synced to the disk as in the service. Measured are:

    deliveries   A worker (steps = deliver, the rows are in the ledger) against a bare loop with httpx that makes the same calls
                 at the same concurrency, without ledger and order. The receiver is `notification_service.simulator.receiver`,
                 in a process of its own. CPU is shown for the client, the receiver and PostgreSQL.
    intake       Rows per second from a file of notifications of 1.4 KB into the ledger, against reading the file alone.
    claims       Milliseconds of a claim of 20 rows, and of writing their outcomes, beside many rows that have ended: medians.

It fails if something was lost, doubled or overtaken.
"""

import asyncio
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

import httpx
import msgspec
from sqlalchemy import create_engine, text

from benchmarks._runner import (
    Case,
    Figures,
    Spent,
    Stopwatch,
    WrongResult,
    apart,
    arguments,
    cpu_of_family,
    runs,
    show,
    wanted,
)
from benchmarks._servers import running
from benchmarks._worker import line_of, override
from guardian.headers import NOTIFICATION_ID, TRANSACTION_STATUS
from notification_service.configuration.configuration import Configuration, load
from notification_service.connectors.line_format import Line, encode_line
from notification_service.delivery.core.answers import Done
from notification_service.delivery.core.jobs import Claim, Item
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Step
from notification_service.delivery.source_reader import SourceReader, Sources
from notification_service.delivery.worker import DeliveryWorker
from notification_service.simulator.receiver.check import compare
from notification_service.wiring.delivery import make_ledger
from notification_service.wiring.delivery_sources import open_feed, source_of_files
from servers.receiver import ReceiverServer

RECEIVER, JOB = "r", "j"
PER_UNIT = 8
VALUE_BYTES = 1_400
"""About what a notification of the service has."""

GOAL = 0.7
"""The goal for the worker's deliveries per second, of those of the bare loop."""

INTAKE_GOAL = "5 000 per s"
CLAIM_GOAL = "at most 1.5"
_DELIVERY = "payment-status-notification.delivery"
_AT_ONCE = 20
"""Calls at the same time, and rows of a claim."""

_FILLED = 100_000
_OWNER = "benchmark"
_PORTION = 2_000
_SMALL = b"x" * 100
"""The value of the rows that are only there: ten million of them fit on a disk."""

_NUMBERS = {
    "sqlite": "with recursive n(i) as (select :first union all select i + 1 from n where i < :last)",
    "postgresql": "with n(i) as (select generate_series(cast(:first as bigint), cast(:last as bigint)))",
}
_KEYS = f"insert into delivery_key (receiver, key) {{}} select '{RECEIVER}', 'filler-' || i from n"
_ROWS = (
    "insert into delivery_row (receiver, job, key, dedup, notification_id, position, headers, value, status, step, is_head,"
    " due_at, epoch, attempts, questions, is_late, taken_at, ended_at)"
    f" {{}} select '{RECEIVER}', :job, 'filler-' || i, 'filler-' || i, 'filler-' || i, 'p@' || i, :headers, :value, 'processed',"
    " 'deliver', false, :now, 1, 0, 0, false, :now, cast(:now as bigint) from n"
)
_JOB = "update delivery_job set ingested = ingested + :new, processed = processed + :new where id = :job"


class Database(msgspec.Struct, frozen=True):
    """Where runs have their ledgers: SQLite in files of `directory`, or the PostgreSQL server at `url`. `process` is its id."""

    name: str
    directory: Path
    url: str | None = None
    process: int | None = None


class Run(msgspec.Struct, frozen=True):
    """A directory and an empty ledger that nothing else uses, and a receiver. `overrides` are the configuration's keys."""

    directory: Path
    overrides: Sequence[str]
    url: str

    def configuration(self) -> Configuration:
        return load(overrides=self.overrides)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        with closing(make_ledger(self.configuration())) as ledger:
            yield ledger


def new_run(database: Database, url: str = "http://127.0.0.1:1") -> Run:
    """Return a run with the receiver `r`, whose only step is to deliver."""
    name = uuid4().hex
    place = database.directory / name
    (place / "out").mkdir(parents=True)
    receiver = {"url": f'"{url}"', "live": "false", "steps": "deliver", "concurrency": _AT_ONCE}
    overrides = [override("run-directory", place)]
    overrides += [f"{_DELIVERY}.receivers.{RECEIVER}.{key}={value}" for key, value in receiver.items()]
    if database.url is not None:
        server = create_engine(database.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with server.connect() as connection:
            connection.execute(text(f'create database "{name}"'))
        server.dispose()
        overrides.append(f'{_DELIVERY}.ledger.url="{database.url.rpartition("/")[0]}/{name}"')
    return Run(place, overrides, url)


def write_notifications(file: Path, count: int) -> list[tuple[str, str]]:
    """Write so many notifications, of `PER_UNIT` units' turns; return unit and notification id of each, in their order."""
    units = max(1, count // PER_UNIT)
    pairs = [(f"unit-{number % units:08}", f"notification-{number:010}") for number in range(count)]
    with file.open("wb") as lines:
        for unit, identifier in pairs:
            beginning = f'{{"id": "{identifier}", "report": "'.encode()
            value = beginning + b"x" * (VALUE_BYTES - len(beginning) - 2) + b'"}'
            headers = ((NOTIFICATION_ID, identifier.encode()), (TRANSACTION_STATUS, b"ACSC"))
            lines.write(encode_line(Line(value, unit.encode(), headers)))
    return pairs


def lines_of(file: Path) -> list[Line]:
    with file.open("rb") as lines:
        return [*map(line_of, lines)]


def take_in(run: Run, ledger: Ledger, file: Path) -> None:
    """Start the job, and read its file to the end into the ledger."""
    ledger.start_job(JOB, RECEIVER, source_of_files(run.configuration(), [file]), _OWNER)
    sources = Sources("live", partial(open_feed, run.configuration()))
    with closing(SourceReader(ledger, RECEIVER, _OWNER, sources, lambda: None)) as reader:
        while reader.read():
            pass


Client = Callable[[Run, Path], Spent]
"""Delivers what a file holds to the receiver of the run."""


def loop(run: Run, file: Path) -> Spent:
    """A bare loop: neither a ledger nor an order, and nothing is done after an error."""
    calls = lines_of(file)
    watch = Stopwatch()
    asyncio.run(_call_all(iter(calls), run.url))
    return watch.spent()


def worker(run: Run, file: Path) -> Spent:
    """A delivery worker. The rows are in the ledger when the clock starts; it stops with the job's completion."""
    with run.ledger() as ledger:
        take_in(run, ledger, file)
        settings, events = run.configuration().delivery.worker, list[object]()
        sources = Sources("live", partial(open_feed, run.configuration()))
        deliverer = DeliveryWorker(ledger, settings, _OWNER, sources, lambda: events.extend(ledger.events.after(0, 1)))
        began, watch = time.time(), Stopwatch()
        deliverer.run(lambda: bool(events))
        return watch.spent()._replace(wall=ledger.find_job(JOB).completed_at / 1_000 - began)


def measure(client: Client, database: Database, file: Path, pairs: Sequence[tuple[str, str]]) -> Figures:
    """Let the client run in a process of its own, with a receiver of its own.

    Raises:
        WrongResult: The receiver did not take each of `pairs` exactly once, or from the worker not in the order of a unit.
    """
    receiver = ReceiverServer(database.directory / f"receiver-{time.monotonic_ns()}").start()
    try:
        processes = {"receiver us": receiver.process.pid}
        if database.process is not None:
            processes["PostgreSQL us"] = database.process
        before = {name: cpu_of_family(process) for name, process in processes.items()}
        spent = apart(client, new_run(database, receiver.url), file)
        used = {name: (cpu_of_family(process) - before[name]) / len(pairs) * 1e6 for name, process in processes.items()}
        found = compare(receiver.data, pairs)
    finally:
        receiver.kill()
    if found.lost or found.doubled or found.unexpected or (client is not loop and found.misplaced):
        raise WrongResult(found.table())
    return {**spent.of_each(len(pairs)), **used}


async def _call_all(calls: Iterator[Line], url: str) -> None:
    limits = httpx.Limits(max_connections=_AT_ONCE, max_keepalive_connections=_AT_ONCE)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=10, trust_env=False) as client:

        async def call_some() -> None:
            for call in calls:
                headers = dict(call.headers)
                fields = {"content-type": b"application/json", "idempotency-key": headers[NOTIFICATION_ID], **headers}
                encoded = [(name.encode(), value) for name, value in fields.items()]
                answer = await client.post(
                    f"/payments/{(call.key or b'').decode()}/statuses", content=call.value, headers=encoded
                )
                answer.raise_for_status()

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(call_some())


def claims(run: Run, size: int, filled: int, rounds: int) -> Figures:
    """Return the cost of claims beside so many ended rows, of which `filled` are there.

    Raises:
        WrongResult: A claim did not find its rows.
    """
    job, wanted = f"{JOB}-{size}-{uuid4().hex}", rounds * _AT_ONCE
    claiming, finishing = list[float](), list[float]()
    with run.ledger() as ledger:
        _fill(ledger, range(filled, size))
        ledger.start_job(job, RECEIVER, "none", _OWNER)
        opened = ledger.open_intake(job, _OWNER)
        names = [f"{job}-{each}" for each in range(wanted)]
        items = [Item(name, name, b"{}", (), f"p@{at}", name) for at, name in enumerate(names)]
        for end in range(_PORTION, wanted + _PORTION, _PORTION):
            ledger.take_in(opened, RECEIVER, Portion(items[end - _PORTION : end], {"p": end}, seals=end >= wanted))
        for _ in range(rounds):
            began = time.perf_counter()
            claimed = _claim(ledger, _AT_ONCE)
            found_at = time.perf_counter()
            ledger.finish(RECEIVER, [ClaimResult(each, Done()) for each in claimed])
            claiming.append((found_at - began) * 1_000)
            finishing.append((time.perf_counter() - found_at) * 1_000)
        found = ledger.find_job(job)
    if found is None or found.processed != wanted:
        raise WrongResult(f"claims beside {size} rows: {found}")
    return {"claim ms": median(claiming), "outcomes ms": median(finishing)}


def _claim(ledger: Ledger, wanted: int) -> list[Claim]:
    return ledger.claim(RECEIVER, Step.DELIVER, _OWNER, wanted).claims


def _fill(ledger: Ledger, numbers: range) -> None:
    """Add ended rows of other units. PostgreSQL has then done what follows by itself after so many new rows."""
    job = f"filler-{numbers.start}"
    ledger.start_job(job, RECEIVER, "none", _OWNER)
    for first in range(numbers.start, numbers.stop, _FILLED):
        last = min(first + _FILLED, numbers.stop) - 1
        with ledger.database.write() as connection:
            row = {"first": first, "last": last, "job": job, "headers": b"[]", "value": _SMALL, "new": last - first + 1}
            row["now"] = ledger.database.now(connection)
            for statement in (_KEYS, _ROWS, _JOB):
                connection.execute(text(statement.format(_NUMBERS[connection.dialect.name])), row)
    if not ledger.database.is_sqlite:
        with ledger.database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in ("set statement_timeout = 0", "vacuum (analyze) delivery_row", "checkpoint"):
                connection.execute(text(statement))


def intake(database: Database, file: Path, count: int) -> Figures:
    """Return the rows per second of taking the file in, and of reading and decoding it alone.

    Raises:
        WrongResult: A row is missing.
    """
    run = new_run(database)
    with run.ledger() as ledger:
        ledger.jobs()  # The tables are made.
        watch = Stopwatch()
        take_in(run, ledger, file)
        whole, job = watch.spent().wall, ledger.find_job(JOB)
    if job is None or job.expected != count:
        raise WrongResult(f"{count} notifications were to be taken in: {job}")
    watch = Stopwatch()
    lines_of(file)
    reading = watch.spent().wall
    return {"rows/s": count / whole, "read alone/s": count / reading, "ratio": reading / whole}


def _deliveries(chosen: Namespace, found: Sequence[Database]) -> None:
    file = found[0].directory / "notifications.jsonl"
    pairs = write_notifications(file, chosen.deliveries)
    cases = [Case("bare loop", partial(measure, loop, found[0], file, pairs), "bare loop")]
    cases += [Case(each.name, partial(measure, worker, each, file, pairs), "bare loop", GOAL) for each in found]
    print(f"{chosen.deliveries:,} deliveries, {_AT_ONCE} at once", flush=True)
    show(cases, runs(chosen, cases))


def _intakes(chosen: Namespace, found: Sequence[Database]) -> None:
    file = found[0].directory / "intake.jsonl"
    write_notifications(file, chosen.intake)
    cases = [Case(f"{each.name}, intake", partial(intake, each, file, chosen.intake), goal=INTAKE_GOAL) for each in found]
    show(cases, runs(chosen, cases), {})


def _claims_beside(chosen: Namespace, found: Sequence[Database]) -> None:
    chosen.rounds = 1  # The rows stay, and a figure is a median of many claims.
    for database in found:
        run, cases, sizes = new_run(database), list[Case](), sorted(chosen.beside)
        for filled, size in zip([0, *sizes], sizes, strict=False):
            first = f"{database.name}, {sizes[0]:,} rows"
            work = partial(claims, run, size, filled, chosen.claims)
            cases.append(Case(f"{database.name}, {size:,} rows", work, first, CLAIM_GOAL))
        show(cases, runs(chosen, cases), {"claim ms": 1, "outcomes ms": 1})


PARTS: dict[str, Callable[[Namespace, Sequence[Database]], None]] = {
    "deliveries": _deliveries,
    "intake": _intakes,
    "claims": _claims_beside,
}


def main() -> None:
    large = {"beside": [1_000, 100_000, 1_000_000, 10_000_000]}
    given = {"deliveries": 4_000, "intake": 20_000, "claims": 200, "beside": [1_000, 100_000, 1_000_000]}
    chosen = arguments(__doc__, large=large, postgresql=False, **given)
    with running(*["postgresql"] if chosen.postgresql else []) as servers:
        found = [Database("SQLite", servers.directory)]
        for each, process in servers.processes.items():
            found.append(Database("PostgreSQL", servers.directory, servers.addresses[each], process))
        for name, part in PARTS.items():
            if wanted(chosen, name):
                part(chosen, found)


if __name__ == "__main__":
    main()
