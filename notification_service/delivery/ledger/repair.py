"""Repairs jobs: their failed rows are opened again, some at a time. If a process ends meanwhile the workers go on."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from notification_service.delivery.core.jobs import Status
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.completion import complete_jobs
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finding import check_receiver, get_job
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.tables import ERRORS, JOBS, ROWS
from notification_service.delivery.settings import Receiver

IN_ORDER, LATE = "in-order", "late"

_CHUNK = 500


def retry_failed(database: Database, receivers: dict[str, Receiver], job: str, *, with_late: bool) -> tuple[int, int]:
    """Let the failed rows of a job be delivered again with new attempts; return how many, and how many were left.

    A row behind which a later one of its unit was delivered already is left, unless `with_late`: it is marked late then. What
    could not be delivered to any receiver, such as a record whose key is no unit, was never called and stays failed. An order
    that was interrupted is ended by the delivery workers.

    Raises:
        JobRefused: There is no such job, it was cancelled, or its receiver is not configured.
    """
    with database.write() as connection:
        found = get_job(connection, job)
        if found["cancelled_at"] is not None:
            raise JobRefused(f"{job} was cancelled; start another job to deliver what it has left")
        check_receiver(receivers, found)
        order = {"repair": LATE if with_late else IN_ORDER, "repaired_to": 0, "repaired": 0, "not_repaired": 0}
        connection.execute(update(JOBS).where(JOBS.c.id == job).values(**order))
    go_on_repairing(database, receivers, job)
    with database.read() as connection:
        found = get_job(connection, job)
        return found["repaired"], found["not_repaired"]


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
        # The gate is locked from here on: of several that repair, one after the other goes on behind what is decided.
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
