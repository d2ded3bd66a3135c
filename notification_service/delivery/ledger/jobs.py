"""Jobs in the ledger: how they are started and shown, and how their receivers and rows are."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import Connection, RowMapping, Select, bindparam, case, func, literal, select, true, update
from sqlalchemy.exc import IntegrityError

from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.gate import GateState
from notification_service.delivery.core.jobs import (
    Delivery,
    ErrorFilter,
    GateReport,
    Job,
    JobState,
    Retries,
    RowError,
    WaitingRow,
)
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.claims import running_calls
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.gates import read_gate
from notification_service.delivery.ledger.job_rows import ENDED, SCHEDULE, conditions_of, get_job
from notification_service.delivery.ledger.tables import ERRORS, IS_HEAD, IS_OPEN, JOBS, KEYS, ROWS, SOURCES, chunks
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import Instant, instant_text

LIVE_JOB, SCHEDULE_JOB = "live-", "schedule-"
"""The names of the jobs that never end begin so: of what comes, and of the requests of a schedule."""

LONGEST_NAME = 100

_BY_PLACE = re.compile("live:[^:]*:/")
"""The sources of versions that named them by host and path."""

_HELD = (KEYS.c.receiver, KEYS.c.key, KEYS.c.held_by)
_MODES = ("suspensions", "verifications", "back_offs", "limits")
_COPIED = (
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
    "missing",
    "lacks",
    "accepted",
)


class Former(msgspec.Struct, frozen=True):
    """How a version before named a source: by `source`, or by the same on another machine or in another directory.

    Then `find_parts` returns what parts the source has now, and the job that has read one of them is its job. With `shares_parts`
    it had one job for the sources of all services: the first service takes that over, and the others their positions in it.
    """

    source: str
    find_parts: Callable[[], Collection[str]]
    shares_parts: bool = False


def ensure_live(database: Database, receiver: str, source: str, service: str, former: Former | None = None) -> str:
    """Return the id of the job that never ends: it delivers to this receiver whatever comes from the source.

    The first source of a receiver gives the name `live-RECEIVER`, others a longer one. A job of before is taken over.
    """
    of_receiver = select(JOBS.c.id, JOBS.c.source).where(JOBS.c.receiver == receiver, JOBS.c.is_live, JOBS.c.source != SCHEDULE)
    with database.read() as connection:
        known = {each.source: each.id for each in connection.execute(of_receiver)}
    if source in known:
        return str(known[source])
    if former is not None and (taken := _take_over(database, known, source, service, former)) is not None:
        return taken
    name = f"{LIVE_JOB}{receiver}"
    parts = former.find_parts() if former is not None and former.shares_parts and known else ()
    try:
        start_job(database, name, receiver, source, "configuration", service, live_parts=parts)
    except JobRefused:
        name = f"{name}-{sha256(source.encode()).hexdigest()[:8]}"
        start_job(database, name, receiver, source, "configuration", service, live_parts=parts)
    return name


def _take_over(database: Database, known: Mapping[str, str], source: str, service: str, former: Former) -> str | None:
    """Give the job of before the source and the service; None if there is none."""
    if former.shares_parts and former.source not in known:
        return None
    named_by_place = {job: each for each, job in known.items() if _BY_PLACE.match(each)}
    with database.write() as connection:
        job = known.get(former.source) or _find_reader(connection, list(named_by_place), former.find_parts())
        if job is None:
            return None
        is_same = (JOBS.c.id == job, JOBS.c.source == (former.source if former.source in known else named_by_place[job]))
        is_ours = JOBS.c.service.in_(["", service]) if former.shares_parts else true()
        changed = update(JOBS).where(*is_same, is_ours).values(source=source, service=service)
        return job if connection.execute(changed).rowcount or not former.shares_parts else None


def _find_reader(connection: Connection, jobs: list[str], parts: Collection[str]) -> str | None:
    """Return which of the jobs has read these parts, or more of them than the others."""
    found = Counter[str]()
    for some in chunks(sorted(parts)):
        asked = select(SOURCES.c.job).where(SOURCES.c.job.in_(jobs), SOURCES.c.part.in_(some))
        found.update(connection.scalars(asked))
    return next((job for job, _ in found.most_common(1)), None)


def schedule_job(database: Database, schedule: str, receiver: str, service: str) -> str:
    """Return the id of the job that delivers the requests of a schedule; note the job if it is not there.

    Raises:
        JobRefused: The schedule has made requests for another receiver.
    """
    job = f"{SCHEDULE_JOB}{schedule}"
    try:
        start_job(database, job, receiver, SCHEDULE, "configuration", service, live_parts=())
    except JobRefused as error:
        raise JobRefused(f"schedule {schedule} has made requests for another receiver than {receiver}: rename it") from error
    return job


def count_open(database: Database, job: str) -> int:
    """Return how many rows of a job have not ended."""
    with database.read() as connection:
        return connection.scalar(select(JOBS.c.ingested - ENDED).where(JOBS.c.id == job)) or 0


def start_job(
    database: Database,
    job: str,
    receiver: str,
    source: str,
    by: str,
    service: str,
    *,
    live_parts: Collection[str] | None = None,
) -> bool:
    """Note the job, and return whether it is new. The service publishes its end, whichever process delivers its last row.

    Without `live_parts` the job ends some time. Of them it continues where the live jobs of its receiver are.

    Raises:
        JobRefused: There is a job of this name for another receiver or source, or no database takes the name.
    """
    if len(job) > LONGEST_NAME or "\x00" in job:
        raise JobRefused(f"the name of a job has at most {LONGEST_NAME} characters and no NUL; choose another name")
    with database.write() as connection:
        found = connection.execute(select(JOBS.c.receiver, JOBS.c.source).where(JOBS.c.id == job)).first()
        if found is None:
            now = database.now(connection)
            values = {
                "id": job,
                "receiver": receiver,
                "source": source,
                "is_live": live_parts is not None,
                "started_at": now,
                "started_by": by,
            }
            values |= {"service": service}
            try:
                with connection.begin_nested():
                    connection.execute(JOBS.insert().values(**values, taken_at=now))
                    _take_positions(connection, job, receiver, live_parts or ())
            except IntegrityError:
                found = connection.execute(select(JOBS.c.receiver, JOBS.c.source).where(JOBS.c.id == job)).first()
            else:
                return True
        if found is None or found.receiver != receiver or found.source != source:
            raise JobRefused(f"there is a job {job} already, which delivers something else: choose another name")
        return False


def _take_positions(connection: Connection, job: str, receiver: str, parts: Collection[str]) -> None:
    for some in chunks(sorted(parts)):
        of_others = select(literal(job), SOURCES.c.part, func.max(SOURCES.c.position)).join(JOBS, JOBS.c.id == SOURCES.c.job)
        known = of_others.where(JOBS.c.receiver == receiver, JOBS.c.is_live, SOURCES.c.part.in_(some)).group_by(SOURCES.c.part)
        connection.execute(SOURCES.insert().from_select(["job", "part", "position"], known))


def open_jobs(database: Database, receiver: str) -> list[tuple[str, str]]:
    """Return the jobs to this receiver whose source is not read to the end: id and source."""
    with database.read() as connection:
        asked = select(JOBS.c.id, JOBS.c.source).where(
            JOBS.c.receiver == receiver,
            JOBS.c.sealed_at.is_(None),
            JOBS.c.cancelled_at.is_(None),
            JOBS.c.source != SCHEDULE,
        )
        return [(job, source) for job, source in connection.execute(asked.order_by(JOBS.c.started_at))]


def list_jobs(database: Database, stalled_after_ms: int, job: str | None = None) -> list[Job]:
    """Return the jobs, the newest first; with `job` only that one."""
    asked = select(JOBS).order_by(JOBS.c.started_at.desc(), JOBS.c.id)
    if job is not None and "\x00" in job:
        return []
    with database.read() as connection:
        now = database.now(connection)
        holds = _held_units(connection)
        found = connection.execute(asked if job is None else asked.where(JOBS.c.id == job)).mappings().all()
    return [_job_of(each, holds[each["id"]], now, stalled_after_ms) for each in found]


def _held_units(connection: Connection) -> Counter[str]:
    """Return by job how many units are held for it: the job whose row failed, and those with rows that wait behind it.

    The indexes lead from the held units to the rows, and not from all rows to the units.
    """
    held: dict[str, dict[str, int]] = {}
    for receiver, key, row in connection.execute(select(*_HELD).where(KEYS.c.held_by.is_not(None))):
        held.setdefault(receiver, {})[key] = row
    found: set[tuple[str, str, str]] = set()
    for receiver, units in held.items():
        for some in chunks(list(units)):
            of = select(ROWS.c.job, ROWS.c.key).distinct()
            waiting = of.where(ROWS.c.receiver == receiver, ROWS.c.key.in_(some), IS_OPEN)
            failed = of.where(ROWS.c.id.in_([units[key] for key in some]))
            found |= {(job, receiver, key) for asked in (waiting, failed) for job, key in connection.execute(asked)}
    return Counter(job for job, _, _ in found)


def list_deliveries(database: Database, receivers: Sequence[str], text: str, limit: int) -> list[Delivery]:
    """Return the rows of a unit, and those of a notification by its id, the oldest first. Each is found by an index."""
    if "\x00" in text:
        return []  # PostgreSQL takes no NUL, not even to look for it.
    names = ("id", "receiver", "job", "key", *Delivery.__struct_fields__[4:])
    shown = [ROWS.c[name] for name in names]
    of_unit = ROWS.c.receiver.in_(receivers) & (ROWS.c.key == text)
    of_notification = ROWS.c.job.in_(select(JOBS.c.id)) & (ROWS.c.dedup == text)
    found: dict[int, Delivery] = {}
    with database.read() as connection:
        for wanted in (of_unit & IS_OPEN, of_unit & ROWS.c.ended_at.is_not(None), of_notification):
            for row in connection.execute(select(*shown).where(wanted).order_by(ROWS.c.id).limit(limit)):
                found[row[0]] = Delivery(*row)
    return [found[number] for number in sorted(found)][:limit]


def list_errors(database: Database, job: str, limit: int, only: ErrorFilter) -> list[RowError]:
    """Return why rows of a job that the filter chooses have failed or were rejected, the oldest rows first."""
    asked = (
        select(ERRORS, ROWS.c.status, ROWS.c.key, ROWS.c.notification_id, ROWS.c.position)
        .join(ROWS, ROWS.c.id == ERRORS.c.row)
        .where(ERRORS.c.job == job, *conditions_of(only))
        .order_by(ERRORS.c.row)
        .limit(limit)
    )
    with database.read() as connection:
        get_job(connection, job)
        return [
            RowError(
                row=each["row"],
                status=each["status"],
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


def list_waiting(database: Database, receiver: str, limit: int) -> list[WaitingRow]:
    """Return the open rows that are the first of their units, the one that is due first at the top."""
    names = ("job", "notification_id", "status", "mode", "step", "due_at", "owner", "attempts", "error")
    of_step = select(ROWS).where(ROWS.c.receiver == receiver, ROWS.c.step == bindparam("due"), IS_HEAD)
    with database.read() as connection:
        # One index has the rows of each step in this order: all together would have to be sorted.
        asked = [
            connection.execute(of_step.order_by(ROWS.c.due_at).limit(limit), {"due": step.value}).mappings() for step in Step
        ]
        found = sorted((each for rows in asked for each in rows), key=lambda each: each["due_at"])[:limit]
    return [WaitingRow(row=each["id"], unit=each["key"], **{name: each[name] for name in names}) for each in found]


def list_held(database: Database, receiver: str, limit: int) -> list[tuple[str, int]]:
    """Return the held units, each with the row whose failure holds it."""
    with database.read() as connection:
        asked = select(KEYS.c.key, KEYS.c.held_by).where(KEYS.c.receiver == receiver, KEYS.c.held_by.is_not(None))
        return [(key, row) for key, row in connection.execute(asked.order_by(KEYS.c.held_by).limit(limit))]


def list_gates(
    database: Database,
    receivers: Sequence[tuple[str, Receiver]],
    stalled_after_ms: int,
    rate_of: Callable[[str, int], float | None],
) -> list[GateReport]:
    """Return the gate of each receiver, and how its jobs are. `rate_of` returns how fast so large a backlog grows."""
    with database.read() as connection:
        now = database.now(connection)
        return [_gate(connection, name, receiver, (now, stalled_after_ms), rate_of) for name, receiver in receivers]


def _gate(
    connection: Connection,
    name: str,
    receiver: Receiver,
    when: tuple[Instant, int],
    rate_of: Callable[[str, int], float | None],
) -> GateReport:
    gate, (now, stalled_after_ms) = read_gate(connection, name), when
    is_open = gate.state is GateState.OPEN
    jobs = connection.execute(_sums(receiver, now - stalled_after_ms).where(JOBS.c.receiver == name)).mappings().one()
    held = connection.scalar(select(func.count()).where(KEYS.c.receiver == name, KEYS.c.held_by.is_not(None)))
    waiting = int(jobs["waiting"] or 0)
    oldest_at = connection.scalar(select(func.min(ROWS.c.taken_at)).where(ROWS.c.receiver == name, IS_OPEN))
    return GateReport(
        receiver=name,
        is_open=is_open,
        reason=gate.reason,
        since=gate.since or None,
        probe_at=None if is_open else gate.probe_at,
        probes=gate.probes,
        slept_ms=gate.slept_ms + (0 if is_open else max(0, now - gate.since)),
        limit=max(1, int(gate.limit or receiver.concurrency)),
        running=running_calls(connection, name),
        waiting=waiting,
        held_units=held or 0,
        failed=int(jobs["failed"] or 0),
        retries=Retries(*(int(jobs[each] or 0) for each in _MODES)),
        stalled_jobs=int(jobs["stalled"] or 0),
        missing_jobs=int(jobs["missing"] or 0),
        unread_ms=None if jobs["read_at"] is None else max(0, now - jobs["read_at"]),
        backlog=make_backlog(waiting, None if oldest_at is None else instant_text(oldest_at), rate_of(name, waiting)),
        pause=gate.pause,
    )


def _sums(receiver: Receiver, stalled_since: Instant) -> Select[Any]:
    """Ask for numbers over all jobs of a receiver. A job of a schedule has no source, nor has a live one that is not live now."""
    read_at = case((JOBS.c.taken_at > JOBS.c.caught_up_at, JOBS.c.taken_at), else_=JOBS.c.caught_up_at)
    has_source = (JOBS.c.source != SCHEDULE) & (~JOBS.c.is_live | literal(receiver.is_live))
    is_open = JOBS.c.sealed_at.is_(None) & JOBS.c.cancelled_at.is_(None)
    is_stalled = has_source & is_open & (read_at < stalled_since)
    return select(
        func.sum(JOBS.c.ingested - ENDED).label("waiting"),
        func.sum(JOBS.c.failed).label("failed"),
        *(func.sum(JOBS.c[each]).label(each) for each in _MODES),
        func.sum(case((is_stalled, 1), else_=0)).label("stalled"),
        func.sum(case((is_open & (JOBS.c.missing > 0), 1), else_=0)).label("missing"),
        func.max(case((has_source & JOBS.c.is_live, read_at))).label("read_at"),
    )


def _job_of(job: RowMapping, held: int, now: Instant, stalled_after_ms: int) -> Job:
    ended = job["processed"] + job["rejected"] + job["failed"] + job["cancelled"]
    return Job(
        id=job["id"],
        receiver=job["receiver"],
        source=job["source"],
        is_live=job["is_live"],
        state=_state(job, held, now, stalled_after_ms),
        started_at=job["started_at"],
        started_by=job["started_by"],
        expected=job["expected"],
        open=job["ingested"] - ended,
        retries=Retries(job["suspensions"], job["verifications"], job["back_offs"], job["limits"]),
        held_units=held,
        sealed_at=job["sealed_at"],
        completed_at=job["completed_at"],
        **{name: job[name] for name in _COPIED},
    )


def _state(job: RowMapping, held: int, now: Instant, stalled_after_ms: int) -> JobState:
    if job["cancelled_at"] is not None:
        return JobState.CANCELLED
    if job["completed_at"] is not None:
        return JobState.COMPLETE
    if job["missing"]:
        return JobState.MISSING
    if held:
        return JobState.HELD
    # A live job reads its source to the end again and again; that of a schedule has no source.
    read_at = max(job["taken_at"], job["caught_up_at"])
    is_stalled = job["sealed_at"] is None and job["source"] != SCHEDULE and now - read_at > stalled_after_ms
    return JobState.STALLED if is_stalled else JobState.ACTIVE
