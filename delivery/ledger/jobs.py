"""Jobs in the ledger: how they are started, shown, cancelled and repaired."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, bindparam, exists, func, select, update
from sqlalchemy.exc import IntegrityError

from delivery.errors import JobRefused
from delivery.gate import GateState
from delivery.jobs import GateReport, Job, JobState, Retries, RowError, WaitingRow
from delivery.ledger.claims import running_calls
from delivery.ledger.completion import complete_jobs
from delivery.ledger.database import Database
from delivery.ledger.finishing import Finishing
from delivery.ledger.gates import lock_gate, read_gate, write_gate
from delivery.ledger.tables import ERRORS, IS_HEAD, IS_OPEN, JOBS, KEYS, ROWS
from delivery.rows import Status
from delivery.settings import Receiver, Step
from domain.clock import Instant

LIVE_JOB, SCHEDULE_JOB = "live-", "schedule-"
"""The names of the jobs that never end begin so: of what comes, and of the requests of a schedule."""

_SCHEDULE = "schedule"
"""The source of the job of a schedule, which is no feed."""

_CHUNK = 500
_COUNTED = (
    "read",
    "duplicates",
    "not_selected",
    "ingested",
    "processed",
    "rejected",
    "failed",
    "cancelled",
    "late",
    "refused_results",
)


def live_job(receiver: str) -> str:
    """Return the id of the job that never ends: it delivers to this receiver whatever comes."""
    return f"{LIVE_JOB}{receiver}"


def schedule_job(database: Database, schedule: str, receiver: str) -> str:
    """Return the id of the job that delivers the requests of a schedule; note the job if it is not there.

    Raises:
        JobRefused: The schedule has made requests for another receiver.
    """
    job = f"{SCHEDULE_JOB}{schedule}"
    try:
        start_job(database, job, receiver, _SCHEDULE, "configuration", is_live=True)
    except JobRefused as error:
        raise JobRefused(f"schedule {schedule} has made requests for another receiver than {receiver}: rename it") from error
    return job


def start_job(database: Database, job: str, receiver: str, source: str, by: str, *, is_live: bool = False) -> bool:
    """Note the job, and return whether it is new.

    Raises:
        JobRefused: There is a job of this name for another receiver or source.
    """
    with database.write() as connection:
        found = connection.execute(select(JOBS.c.receiver, JOBS.c.source).where(JOBS.c.id == job)).first()
        if found is None:
            now = database.now(connection)
            values = {"id": job, "receiver": receiver, "source": source, "is_live": is_live, "started_at": now, "started_by": by}
            try:
                with connection.begin_nested():
                    connection.execute(JOBS.insert().values(**values, taken_at=now))
            except IntegrityError:
                found = connection.execute(select(JOBS.c.receiver, JOBS.c.source).where(JOBS.c.id == job)).first()
            else:
                return True
        if found is None or found.receiver != receiver or (found.source != source and not is_live):
            raise JobRefused(f"there is a job {job} already, which delivers something else: choose another name")
        return False


def open_jobs(database: Database, receiver: str) -> list[tuple[str, str]]:
    """Return the jobs to this receiver whose source is not read to the end: id and source."""
    with database.read() as connection:
        asked = select(JOBS.c.id, JOBS.c.source).where(
            JOBS.c.receiver == receiver,
            JOBS.c.sealed_at.is_(None),
            JOBS.c.cancelled_at.is_(None),
            JOBS.c.source != _SCHEDULE,
        )
        return [(job, source) for job, source in connection.execute(asked.order_by(JOBS.c.started_at))]


def list_jobs(database: Database, stalled_after_ms: int, job: str | None = None) -> list[Job]:
    """Return the jobs, the newest first; with `job` only that one."""
    asked = select(JOBS).order_by(JOBS.c.started_at.desc(), JOBS.c.id)
    held = (
        select(ROWS.c.job, func.count())
        .select_from(KEYS.join(ROWS, (ROWS.c.id == KEYS.c.held_by)))
        .where(KEYS.c.held_by.is_not(None))
        .group_by(ROWS.c.job)
    )
    with database.read() as connection:
        now = database.now(connection)
        holds: dict[str, int] = dict(connection.execute(held).all())
        found = connection.execute(asked if job is None else asked.where(JOBS.c.id == job)).mappings().all()
    return [_told(each, holds.get(each["id"], 0), now, stalled_after_ms) for each in found]


def cancel_job(database: Database, receivers: dict[str, Receiver], job: str) -> None:
    """Cancel a job: nothing more of it is taken in or claimed, and results of calls under way are refused.

    A row that is being called ends with its call, or with its lease: the next one of its unit must not overtake it.

    Raises:
        JobRefused: There is no such job, it has ended, it is the live one, or its receiver is not configured.
    """
    with database.write() as connection:
        found = _find(connection, job)
        if found["source"] == _SCHEDULE:
            raise JobRefused(f"{job} never ends; to make no more requests, remove the schedule from the configuration")
        if found["is_live"]:
            raise JobRefused(f"{job} never ends; to deliver no more to {found['receiver']}, set its key live to false")
        if found["completed_at"] is not None:
            raise JobRefused(f"{job} has ended already")
        _check_receiver(receivers, found)
        now = database.now(connection)
        connection.execute(update(JOBS).where(JOBS.c.id == job, JOBS.c.cancelled_at.is_(None)).values(cancelled_at=now))
    cancel_rows(database, receivers, job)


def cancel_rows(database: Database, receivers: dict[str, Receiver], job: str) -> None:
    """Cancel the open rows of a cancelled job, some in each transaction."""
    done_to: str | None = ""
    while done_to is not None:
        done_to = _cancel_some(database, receivers, job, done_to)


def _cancel_some(database: Database, receivers: dict[str, Receiver], job: str, after: str) -> str | None:
    """Cancel some rows; return the `dedup` of the last one, behind which the next ones are, or None: there was no other row."""
    with database.write() as connection:
        found = _find(connection, job)
        name, now = found["receiver"], database.now(connection)
        # Continue from the last row; starting over would scan all ended rows.
        asked = select(ROWS.c.id, ROWS.c.key, ROWS.c.dedup).where(ROWS.c.job == job, ROWS.c.dedup > after, IS_OPEN)
        rows = connection.execute(asked.order_by(ROWS.c.dedup).limit(_CHUNK)).all()
        if not rows:
            complete_jobs(connection, [job], now)
            return None
        finishing = Finishing(connection, receivers[name], name, now)
        finishing.lock({key for _, key, _ in rows})
        finishing.load([row for row, _, _ in rows])
        for row, _, _ in rows:
            finishing.cancel(finishing.rows[row])
        finishing.write()
    return str(rows[-1].dedup)


def cancelled_jobs(database: Database, receiver: str) -> list[str]:
    """Return the cancelled jobs whose rows have not all ended: a process ended in the midst."""
    with database.read() as connection:
        asked = select(JOBS.c.id).where(
            JOBS.c.receiver == receiver, JOBS.c.cancelled_at.is_not(None), JOBS.c.completed_at.is_(None)
        )
        return list(connection.scalars(asked))


def retry_failed(database: Database, receivers: dict[str, Receiver], job: str, *, with_late: bool) -> tuple[int, int]:
    """Let the failed rows of a job be delivered again with new attempts; return how many, and how many were left.

    A row behind which a later one of its unit was delivered already is left, unless `with_late`: it is marked late then. What
    could not be delivered to any receiver, such as a record whose key is no unit, was never called and stays failed.

    Raises:
        JobRefused: There is no such job, it was cancelled, or its receiver is not configured.
    """
    done = left = 0
    after = 0
    while True:
        with database.write() as connection:
            found = _find(connection, job)
            if found["cancelled_at"] is not None:
                raise JobRefused(f"{job} was cancelled; start another job to deliver what it has left")
            _check_receiver(receivers, found)
            name, now = found["receiver"], database.now(connection)
            was_never_called = exists().where(ERRORS.c.row == ROWS.c.id, ERRORS.c.attempts == 0)
            asked = select(ROWS.c.id, ROWS.c.key).where(
                ROWS.c.job == job, ROWS.c.status == Status.FAILED.value, ROWS.c.id > after, ~was_never_called
            )
            rows = connection.execute(asked.order_by(ROWS.c.id).limit(_CHUNK)).all()
            if not rows:
                # It ends once more, with an event of its own. Not before: it could end between two portions, and tell that, too.
                ended = JOBS.c.processed + JOBS.c.rejected + JOBS.c.failed + JOBS.c.cancelled
                is_open = JOBS.c.id == job if done else (JOBS.c.id == job) & (ended != JOBS.c.ingested)
                connection.execute(update(JOBS).where(is_open).values(completed_at=None))
                complete_jobs(connection, [job] if done else [], now)
                return done, left
            after = rows[-1][0]
            finishing = Finishing(connection, receivers[name], name, now)
            finishing.lock({key for _, key in rows})
            finishing.load([row for row, _ in rows])
            chosen = 0
            for row, key in rows:
                state = finishing.rows[row]
                delivered = finishing.keys[key]["delivered"] if key in finishing.keys else None
                if delivered is None or state["status"] != Status.FAILED.value or (delivered > row and not with_late):
                    left += 1
                    continue
                finishing.reopen(state, 0)
                if finishing.keys[key]["held_by"] == row:
                    finishing.keys[key]["held_by"] = None
                chosen += 1
            finishing.write()
            done += chosen


def release_unit(database: Database, receivers: dict[str, Receiver], receiver: str, unit: str) -> None:
    """Let a held unit go on with its next row; what failed stays failed.

    Raises:
        JobRefused: The unit is not held.
    """
    with database.write() as connection:
        finishing = Finishing(connection, receivers[receiver], receiver, database.now(connection))
        finishing.lock({unit})
        if unit not in finishing.keys or finishing.keys[unit]["held_by"] is None:
            raise JobRefused(f"unit {unit} is not held for {receiver}")
        finishing.keys[unit]["held_by"] = None
        finishing.freed.add(unit)
        finishing.write()


def open_gate(database: Database, receiver: str) -> None:
    """Open a shut gate: rows go on as they are due."""
    with database.write() as connection:
        gate = lock_gate(connection, receiver)
        if gate.state is GateState.OPEN:
            raise JobRefused(f"the gate of {receiver} is open")
        now = database.now(connection)
        write_gate(connection, receiver, gate.opened(now))
        resting = (ROWS.c.receiver == receiver, IS_HEAD, ROWS.c.status == Status.RETRY.value, ROWS.c.mode == "suspension")
        connection.execute(update(ROWS).where(*resting, ROWS.c.owner.is_(None)).values(due_at=now))


def list_errors(database: Database, job: str, most: int) -> list[RowError]:
    """Return why rows of a job failed, the oldest rows first."""
    asked = (
        select(ERRORS, ROWS.c.key, ROWS.c.notification_id, ROWS.c.position)
        .join(ROWS, ROWS.c.id == ERRORS.c.row)
        .where(ERRORS.c.job == job)
        .order_by(ERRORS.c.row)
        .limit(most)
    )
    with database.read() as connection:
        _find(connection, job)
        return [
            RowError(
                row=each["row"],
                unit=each["key"],
                notification_id=each["notification_id"],
                position=each["position"],
                at=each["at"],
                step=each["step"],
                attempts=each["attempts"],
                error=each["error"],
            )
            for each in connection.execute(asked).mappings()
        ]


def list_waiting(database: Database, receiver: str, most: int) -> list[WaitingRow]:
    """Return the open rows that are the first of their units, the one that is due first at the top."""
    names = ("job", "notification_id", "status", "mode", "step", "due_at", "owner", "attempts", "error")
    of_step = select(ROWS).where(ROWS.c.receiver == receiver, ROWS.c.step == bindparam("due"), IS_HEAD)
    with database.read() as connection:
        # One index has the rows of each step in this order: all together would have to be sorted.
        asked = [connection.execute(of_step.order_by(ROWS.c.due_at).limit(most), {"due": step.value}).mappings() for step in Step]
        found = sorted((each for rows in asked for each in rows), key=lambda each: each["due_at"])[:most]
    return [WaitingRow(row=each["id"], unit=each["key"], **{name: each[name] for name in names}) for each in found]


def list_held(database: Database, receiver: str, most: int) -> list[tuple[str, int]]:
    """Return the held units, each with the row whose failure holds it."""
    with database.read() as connection:
        asked = select(KEYS.c.key, KEYS.c.held_by).where(KEYS.c.receiver == receiver, KEYS.c.held_by.is_not(None))
        return [(key, row) for key, row in connection.execute(asked.order_by(KEYS.c.held_by).limit(most))]


def list_gates(database: Database, receivers: Sequence[tuple[str, Receiver]]) -> list[GateReport]:
    """Return the gate of each receiver."""
    with database.read() as connection:
        return [_gate(connection, name, receiver, database.now(connection)) for name, receiver in receivers]


def _gate(connection: Connection, name: str, receiver: Receiver, now: Instant) -> GateReport:
    gate = read_gate(connection, name)
    is_open = gate.state is GateState.OPEN
    open_rows = select(func.sum(JOBS.c.ingested - JOBS.c.processed - JOBS.c.rejected - JOBS.c.failed - JOBS.c.cancelled))
    waiting = connection.scalar(open_rows.where(JOBS.c.receiver == name))
    held = connection.scalar(select(func.count()).where(KEYS.c.receiver == name, KEYS.c.held_by.is_not(None)))
    return GateReport(
        receiver=name,
        is_open=is_open,
        reason=gate.reason,
        since=gate.since or None,
        probe_at=None if is_open else gate.probe_at,
        probes=gate.probes,
        slept_ms=gate.slept_ms + (0 if is_open else now - gate.since),
        limit=max(1, int(gate.limit or receiver.concurrency)),
        running=running_calls(connection, name, now),
        waiting=int(waiting or 0),
        held_units=held or 0,
    )


def _check_receiver(receivers: dict[str, Receiver], job: RowMapping) -> None:
    if job["receiver"] not in receivers:
        remedy = "configure it again, with live = false if nothing new shall be delivered to it"
        raise JobRefused(f"the receiver {job['receiver']} of {job['id']} is not configured with policy = ledger: {remedy}")


def _find(connection: Connection, job: str) -> RowMapping:
    found = connection.execute(select(JOBS).where(JOBS.c.id == job)).mappings().first()
    if found is None:
        raise JobRefused(f"there is no job {job}; `resequencer delivery jobs` lists them")
    return found


def _told(job: RowMapping, held: int, now: Instant, stalled_after_ms: int) -> Job:
    ended = job["processed"] + job["rejected"] + job["failed"] + job["cancelled"]
    return Job(
        id=job["id"],
        receiver=job["receiver"],
        source=job["source"],
        is_live=job["is_live"],
        state=_state(job, held, now, stalled_after_ms),
        started_at=job["started_at"],
        started_by=job["started_by"],
        expected=None if job["sealed_at"] is None else job["ingested"],
        open=job["ingested"] - ended,
        retries=Retries(job["suspensions"], job["verifications"], job["back_offs"], job["limits"]),
        held_units=held,
        sealed_at=job["sealed_at"],
        completed_at=job["completed_at"],
        **{name: job[name] for name in _COUNTED},
    )


def _state(job: RowMapping, held: int, now: Instant, stalled_after_ms: int) -> JobState:
    if job["cancelled_at"] is not None:
        return JobState.CANCELLED
    if job["completed_at"] is not None:
        return JobState.COMPLETE
    if held:
        return JobState.HELD
    is_stalled = job["sealed_at"] is None and not job["is_live"] and now - job["taken_at"] > stalled_after_ms
    return JobState.STALLED if is_stalled else JobState.ACTIVE
