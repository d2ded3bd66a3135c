"""Orders for a whole job: it is cancelled, or its failed rows are opened again, some rows at a time.

From the instant of a cancellation on nothing more of the job is claimed. If a process ends meanwhile, the workers continue."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, select, update

from notification_service.delivery.core.jobs import ErrorFilter, Status
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.job_rows import SCHEDULE, check_receiver, complete_jobs, conditions_of, get_job
from notification_service.delivery.ledger.tables import ERRORS, IS_OPEN, JOBS, KEYS, ROWS
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
        # In the order of an index: to begin again each time would mean to pass over all that have ended.
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


IN_ORDER, LATE = "in-order", "late"


def retry_failed(database: Database, receivers: dict[str, Receiver], job: str, *, with_late: bool) -> tuple[int, int]:
    """Let the failed rows of a job be delivered again with new attempts; return how many, and how many were not.

    A row behind which a later one of its unit was delivered already stays failed, unless `with_late`: it is marked late then.
    What could not be delivered to any receiver, such as a record whose key is no unit, was never called and stays failed. An
    order that was interrupted is ended by the delivery workers.

    Raises:
        JobRefused: There is no such job, it was cancelled, or its receiver is not configured.
    """
    with database.write() as connection:
        found = get_job(connection, job)
        _refuse_cancelled(found)
        check_receiver(receivers, found)
        order = {"repair": LATE if with_late else IN_ORDER, "repaired_to": 0, "repaired": 0, "not_repaired": 0}
        connection.execute(update(JOBS).where(JOBS.c.id == job).values(**order))
    go_on_repairing(database, receivers, job)
    with database.read() as connection:
        found = get_job(connection, job)
        return found["repaired"], found["not_repaired"]


MAX_RETRIED = 1_000
"""So many failed rows are chosen by their errors at once."""


def count_failed(database: Database, job: str, only: ErrorFilter, *, with_late: bool) -> int:
    """Return how many failed rows of a job `retry_chosen` would open again, and one more if these are not all."""
    with database.read() as connection:
        get_job(connection, job)
        chosen = _chosen(job, only, MAX_RETRIED + 1, with_late=with_late)
        return connection.scalar(select(func.count()).select_from(chosen.subquery())) or 0


def retry_chosen(database: Database, receivers: dict[str, Receiver], job: str, only: ErrorFilter, *, with_late: bool) -> int:
    """As `retry_failed`, for the first `MAX_RETRIED` of the rows that the filter chooses, in one transaction; return how many."""
    with database.write() as connection:
        found = get_job(connection, job)
        _refuse_cancelled(found)
        check_receiver(receivers, found)
        name = found["receiver"]
        finishing = Finishing(connection, receivers[name], name, database.now(connection))
        asked = connection.execute(_chosen(job, only, MAX_RETRIED, with_late=with_late))
        chosen = _reopen(finishing, [(each.id, each.key) for each in asked], with_late=with_late)
        finishing.write()
        if chosen:  # It ends once more, with an event of its own.
            connection.execute(update(JOBS).where(JOBS.c.id == job).values(completed_at=None))
    return chosen


def _chosen(job: str, only: ErrorFilter, limit: int, *, with_late: bool) -> Select[tuple[int, str]]:
    asked = select(ROWS.c.id, ROWS.c.key).join(ERRORS, ERRORS.c.row == ROWS.c.id)
    if not with_late:
        is_key = (KEYS.c.receiver == ROWS.c.receiver) & (KEYS.c.key == ROWS.c.key)
        asked = asked.join(KEYS, is_key & (KEYS.c.delivered <= ROWS.c.id))
    is_failed = (ERRORS.c.attempts > 0, ROWS.c.status == Status.FAILED.value)
    return asked.where(ERRORS.c.job == job, *is_failed, *conditions_of(only)).order_by(ERRORS.c.row).limit(limit)


def _refuse_cancelled(job: RowMapping) -> None:
    if job["cancelled_at"] is not None:
        raise JobRefused(f"{job['id']} was cancelled; start another job to deliver what remains")


def go_on_repairing(database: Database, receivers: dict[str, Receiver], job: str) -> None:
    """End the repair of a job; any number of processes may do so at once."""
    while _repair_some(database, receivers, job):
        pass


def jobs_in_repair(database: Database, receiver: str) -> list[str]:
    """Return the jobs whose repair has begun and not ended."""
    with database.read() as connection:
        return list(connection.scalars(select(JOBS.c.id).where(JOBS.c.receiver == receiver, JOBS.c.repair.is_not(None))))


def _repair_some(database: Database, receivers: dict[str, Receiver], job: str) -> bool:
    """Decide about some failed rows; return whether there may be more."""
    with database.write() as connection:
        name, now = get_job(connection, job)["receiver"], database.now(connection)
        # The gate is locked from here on: of several that repair, one after the other continues behind what is decided.
        finishing = Finishing(connection, receivers[name], name, now)
        found = get_job(connection, job)
        if found["repair"] is None:
            return False
        # By the errors, and these some at a time: of a live job there are millions of rows beside them.
        of_job = select(ERRORS.c.row, ERRORS.c.attempts).where(ERRORS.c.job == job, ERRORS.c.row > found["repaired_to"])
        noted = connection.execute(of_job.order_by(ERRORS.c.row).limit(_CHUNK)).all()
        if not noted:
            _end(connection, job)
            complete_jobs(connection, [job], now)
            return False
        called = [each.row for each in noted if each.attempts]
        asked = select(ROWS.c.id, ROWS.c.key).where(ROWS.c.id.in_(called), ROWS.c.status == Status.FAILED.value)
        rows = [(row, key) for row, key in connection.execute(asked.order_by(ROWS.c.id))]
        chosen = _reopen(finishing, rows, with_late=found["repair"] == LATE)
        values: dict[str, Any] = {"repaired_to": noted[-1].row, "repaired": JOBS.c.repaired + chosen}
        values |= {"not_repaired": JOBS.c.not_repaired + len(rows) - chosen}
        # It ends once more, with an event of its own, when the repair has ended.
        values |= {"completed_at": None} if chosen else {}
        finishing.write()
        connection.execute(update(JOBS).where(JOBS.c.id == job).values(**values))
    return True


def _end(connection: Connection, job: str) -> None:
    connection.execute(update(JOBS).where(JOBS.c.id == job).values(repair=None))


def _reopen(finishing: Finishing, rows: Sequence[tuple[int, str]], *, with_late: bool) -> int:
    """Open failed rows again; return how many."""
    finishing.lock({unit for _, unit in rows})
    finishing.load([number for number, _ in rows])
    chosen = 0
    for number, unit in rows:
        row, key = finishing.rows.get(number), finishing.keys.get(unit)
        if row is None or key is None or row["status"] != Status.FAILED.value:
            continue  # Retention has deleted it meanwhile.
        if key["delivered"] > row["id"] and not with_late:
            continue
        finishing.reopen(row, 0)
        if key["held_by"] == row["id"]:
            key["held_by"] = None
        chosen += 1
    return chosen
