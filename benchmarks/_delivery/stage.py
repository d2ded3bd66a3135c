"""Ledgers, and notifications in files, for the benchmark of delivery."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
from sqlalchemy import create_engine, text

from benchmarks._workload import override
from guardian.headers import NOTIFICATION_ID, TRANSACTION_STATUS
from notification_service.configuration.configuration import Configuration, load
from notification_service.connectors.line_format import Line, encode_line
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.source_reader import SourceReader, Sources
from notification_service.wiring.delivery.composition import make_ledger
from notification_service.wiring.delivery.sources import open_feed, source_of_files

RECEIVER, JOB = "r", "j"
PER_UNIT = 8
VALUE_BYTES = 1_400
"""About what a notification of the service has."""

_DELIVERY = "payment-status-notification.delivery"


class WrongResult(Exception):
    """Something was lost, doubled or overtaken: the figures mean nothing."""


class Database(msgspec.Struct, frozen=True):
    """Where runs have their ledgers: SQLite in files of `directory`, or the PostgreSQL server at `url`. `process` is its id."""

    name: str
    directory: Path
    url: str | None = None
    process: int | None = None


class Run(msgspec.Struct, frozen=True):
    """A directory and an empty ledger that nothing else uses. `overrides` are the configuration's keys."""

    directory: Path
    overrides: Sequence[str]

    def configuration(self) -> Configuration:
        return load(overrides=self.overrides)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        with closing(make_ledger(self.configuration())) as ledger:
            yield ledger


def new_run(database: Database, receiver_url: str = "http://127.0.0.1:1", concurrency: int = 20) -> Run:
    """Return a run with the receiver `r`, whose only step is to deliver."""
    name = uuid4().hex
    directory = database.directory / name
    (directory / "out").mkdir(parents=True)
    receiver = f"{_DELIVERY}.receivers.{RECEIVER}"
    overrides = [
        override("run-directory", directory),
        f'{receiver}.url="{receiver_url}"',
        f"{receiver}.live=false",
        f"{receiver}.steps=deliver",
        f"{receiver}.concurrency={concurrency}",
    ]
    if database.url is not None:
        server = create_engine(database.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with server.connect() as connection:
            connection.execute(text(f'create database "{name}"'))
        server.dispose()
        overrides.append(f'{_DELIVERY}.ledger.url="{database.url.rpartition("/")[0]}/{name}"')
    return Run(directory, overrides)


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


def take_in(run: Run, ledger: Ledger, file: Path) -> None:
    """Start the job, and read its file to the end into the ledger."""
    ledger.start_job(JOB, RECEIVER, source_of_files(run.configuration(), [file]), "benchmark")
    sources = Sources("live", partial(open_feed, run.configuration()))
    with closing(SourceReader(ledger, RECEIVER, "benchmark", sources, lambda: None)) as reader:
        while reader.read():
            pass
