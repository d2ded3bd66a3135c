"""Jobs in their table: found by their names, and completed with one event.

The event is written with the change that ended their last row, and numbered when it is published.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, select, update
from sqlalchemy.exc import IntegrityError

from notification_service.delivery.core.jobs import ErrorFilter, JobEvent, JobState
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.tables import COUNTERS, ERRORS, EVENTS, JOBS, SERVICES
from notification_service.delivery.settings import Receiver
from resequencer.clock import Instant

SCHEDULE = "schedule"
"""The source of the job of a schedule, which is no feed."""


def get_job(connection: Connection, job: str) -> RowMapping:
    """Return the row of the job.

    Raises:
        JobRefused: There is none.
    """
    # PostgreSQL takes no NUL, not even to look for it.
    found = None if "\x00" in job else connection.execute(select(JOBS).where(JOBS.c.id == job)).mappings().first()
    if found is None:
        raise JobRefused(f"there is no job {job}; `resequencer delivery jobs` lists them")
    return found


def check_receiver(receivers: dict[str, Receiver], job: RowMapping) -> None:
    """Raise JobRefused if the receiver of the job is not configured."""
    if job["receiver"] not in receivers:
        remedy = "configure it again, with live = false if nothing new shall be delivered to it"
        raise JobRefused(f"the receiver {job['receiver']} of {job['id']} is not configured with policy = ledger: {remedy}")


def conditions_of(only: ErrorFilter) -> list[ColumnElement[bool]]:
    """Return the conditions that choose errors by a filter."""
    since = [] if only.since is None else [ERRORS.c.at >= only.since]
    return since if not only.error else [*since, ERRORS.c.error.icontains(only.error.replace("\x00", "�"), autoescape=True)]


ENDED = JOBS.c.processed + JOBS.c.rejected + JOBS.c.failed + JOBS.c.cancelled
"""How many rows of a job have ended."""

_EVENT, _PUBLISHED, _LEDGER = "event", "published", "ledger"


def complete_jobs(connection: Connection, jobs: Sequence[str], now: Instant) -> None:
    """Complete those of the jobs that have all rows that are expected, or are cancelled, and have no open row.

    A job without rows is not complete before its source was read to the end, and none while its failed rows are opened again.
    The condition is part of the update: of two that try, one succeeds.
    """
    has_all = (JOBS.c.ingested == JOBS.c.expected) | JOBS.c.cancelled_at.is_not(None)
    is_done = has_all & (JOBS.c.ingested == ENDED) & JOBS.c.repair.is_(None)
    is_completed = (
        update(JOBS).where(JOBS.c.completed_at.is_(None), is_done).values(completed_at=now, completions=JOBS.c.completions + 1)
    )
    for job in jobs:
        if connection.execute(is_completed.where(JOBS.c.id == job)).rowcount:
            found = connection.execute(select(JOBS).where(JOBS.c.id == job)).mappings().one()
            _write(connection, found, now)


def ledger_id(connection: Connection) -> str:
    """Return what identifies this ledger, also beside one that was in the same place before: 16 hexadecimal digits."""
    asked = select(COUNTERS.c.value).where(COUNTERS.c.name == _LEDGER)
    found = connection.scalar(asked)
    if found is None:
        try:
            with connection.begin_nested():
                connection.execute(COUNTERS.insert().values(name=_LEDGER, value=secrets.randbits(63)))
        except IntegrityError:
            pass  # Another transaction has made it.
        found = connection.scalar(asked)
    return f"{found or 0:016x}"


def find_published_before(connection: Connection) -> int:
    """Return the number up to which a version that knew no services has published; 0 if none has."""
    found = connection.scalar(select(COUNTERS.c.value).where(COUNTERS.c.name == _PUBLISHED))
    return int(found or 0)


def lock_counter(connection: Connection) -> None:
    """Let other transactions that call this wait until this one ends. `ledger_id` was called before."""
    connection.execute(select(COUNTERS.c.value).where(COUNTERS.c.name == _LEDGER).with_for_update())


def _write(connection: Connection, job: RowMapping, now: Instant) -> None:
    number = _next_number(connection)
    event = JobEvent(
        ledger=ledger_id(connection),
        number=number,
        job=job["id"],
        receiver=job["receiver"],
        state=JobState.COMPLETE if job["cancelled_at"] is None else JobState.CANCELLED,
        run=job["completions"],
        at=now,
        expected=job["ingested"] if job["expected"] is None else job["expected"],
        **{name: job[name] for name in ("processed", "rejected", "failed", "cancelled")},
    )
    # What a version before has begun belongs to the service that takes over.
    owner = job["service"] or connection.scalar(select(SERVICES.c.id).where(SERVICES.c.takes_over)) or ""
    values: dict[str, Any] = {"number": number, "at": now, "job": job["id"], "body": msgspec.json.encode(event), "service": owner}
    connection.execute(EVENTS.insert().values(**values))


def _next_number(connection: Connection) -> int:
    """Return the next number. Its row stays locked until the transaction ends, so that no number is skipped."""
    taken = update(COUNTERS).where(COUNTERS.c.name == _EVENT).values(value=COUNTERS.c.value + 1).returning(COUNTERS.c.value)
    number = connection.scalar(taken)
    if number is None:
        try:
            with connection.begin_nested():
                connection.execute(COUNTERS.insert().values(name=_EVENT, value=0))
        except IntegrityError:
            pass  # Another transaction has made it.
        number = connection.scalar(taken)
    return int(number or 0)
