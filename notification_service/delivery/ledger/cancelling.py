"""Cancels jobs: from the instant of the order on nothing more of them is claimed; their rows end some at a time."""

from collections.abc import Sequence

from sqlalchemy import select, update

from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.completion import complete_jobs
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finding import SCHEDULE, check_receiver, get_job
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.tables import IS_OPEN, JOBS, ROWS
from notification_service.delivery.settings import Receiver

_CHUNK = 500


def cancel_job(database: Database, receivers: dict[str, Receiver], job: str) -> None:
    """Cancel a job: nothing more of it is taken in or claimed, and results of calls under way are refused.

    A row that is being called ends with its call, or with its lease: the next one of its unit must not overtake it. An order
    that was interrupted is ended by the delivery workers.

    Raises:
        JobRefused: There is no such job, it has ended, it is the live one, or its receiver is not configured.
    """
    with database.write() as connection:
        found = get_job(connection, job)
        if found["source"] == SCHEDULE:
            raise JobRefused(f"{job} never ends; to make no more requests, remove the schedule from the configuration")
        if found["is_live"]:
            raise JobRefused(f"{job} never ends; to deliver no more to {found['receiver']}, set its key live to false")
        if found["completed_at"] is not None:
            raise JobRefused(f"{job} has ended already")
        check_receiver(receivers, found)
        is_new = (JOBS.c.id == job) & JOBS.c.cancelled_at.is_(None)
        connection.execute(update(JOBS).where(is_new).values(cancelled_at=database.now(connection), repair=None))
    cancel_rows(database, receivers, job)


def cancel_rows(database: Database, receivers: dict[str, Receiver], job: str) -> None:
    """Cancel the open rows of a cancelled job, some in each transaction."""
    done_to: str | None = ""
    while done_to is not None:
        done_to = _cancel_some(database, receivers, job, done_to)


def cancelled_jobs(database: Database, receiver: str) -> list[str]:
    """Return the cancelled jobs whose rows have not all ended: a process died in the midst."""
    with database.read() as connection:
        asked = select(JOBS.c.id).where(
            JOBS.c.receiver == receiver, JOBS.c.cancelled_at.is_not(None), JOBS.c.completed_at.is_(None)
        )
        return list(connection.scalars(asked))


def cancel_found(database: Database, receiver: Receiver, name: str, rows: Sequence[tuple[int, str]]) -> None:
    """Cancel these rows of cancelled jobs, each given with its key: they were met where a claim looks for work."""
    with database.write() as connection:
        finishing = Finishing(connection, receiver, name, database.now(connection))
        finishing.lock({key for _, key in rows})
        finishing.load([row for row, _ in rows])
        for row in finishing.rows.values():
            finishing.cancel(row)
        finishing.write()


def _cancel_some(database: Database, receivers: dict[str, Receiver], job: str, after: str) -> str | None:
    """Cancel some rows; return the `dedup` of the last one, behind which the next ones are, or None: there was no other row."""
    with database.write() as connection:
        name, now = get_job(connection, job)["receiver"], database.now(connection)
        # In the order of an index: to begin anew each time would mean to pass over all that have ended.
        asked = select(ROWS.c.id, ROWS.c.key, ROWS.c.dedup).where(ROWS.c.job == job, ROWS.c.dedup > after, IS_OPEN)
        rows = connection.execute(asked.order_by(ROWS.c.dedup).limit(_CHUNK)).all()
        if not rows:
            complete_jobs(connection, [job], now)
            return None
        finishing = Finishing(connection, receivers[name], name, now)
        finishing.lock({key for _, key, _ in rows})
        finishing.load([row for row, _, _ in rows])
        for row in finishing.rows.values():
            finishing.cancel(row)
        finishing.write()
    return str(rows[-1].dedup)
