"""The upkeep of the ledger: delivery workers fit rows to changed steps, mend instants of a clock that was ahead, and delete
what ended long ago. Afterwards a repeated notification is delivered again."""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, case, delete, exists, func, or_, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from notification_service.delivery.core.gate import GateState
from notification_service.delivery.core.jobs import RetryMode, Status
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.gates import lock_gate, read_gate, write_gate
from notification_service.delivery.ledger.job_rows import SCHEDULE
from notification_service.delivery.ledger.services import published_events
from notification_service.delivery.ledger.tables import (
    COUNTERS,
    ERRORS,
    EVENTS,
    IS_HEAD,
    IS_OPEN,
    JOBS,
    KEYS,
    ROWS,
    SOURCES,
    chunks,
)
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import SKEW_MS, Instant, Unchanged

_FITTED_AT_ONCE, _CHUNK = 500, 1_000


def fit_steps(database: Database, receiver: Receiver, name: str) -> int:
    """Give heads that wait for a wrong step the step that is next for their unit; return how many.

    The other rows get their step when they become heads. A row that is being called is fitted after its call. Whether units
    must be announced first is looked at only after the receiver's steps have changed: it means to look at all heads.
    """
    with database.read() as connection:
        is_known = read_gate(connection, name).steps == receiver.steps.value
        strange = select(ROWS.c.id, ROWS.c.key).where(ROWS.c.receiver == name, IS_HEAD, _is_wrong(receiver, is_known=is_known))
        if is_known and connection.execute(strange.limit(1)).first() is None:
            return 0
    with database.write() as connection:
        now = database.now(connection)
        finishing = Finishing(connection, receiver, name, now)
        found = connection.execute(strange.where(ROWS.c.owner.is_(None)).limit(_FITTED_AT_ONCE)).all()
        if not is_known and connection.execute(strange.limit(1)).first() is None:
            write_gate(connection, name, msgspec.structs.replace(finishing.gate, steps=receiver.steps.value))
        finishing.lock({key for _, key in found})
        finishing.load([row for row, _ in found])
        for row in finishing.rows.values():
            finishing.fit(row)
        finishing.write()
    return len(found)


def _is_wrong(receiver: Receiver, *, is_known: bool) -> ColumnElement[bool]:
    """Return whether a head waits for a step that there is no more, or is to be delivered although nothing has announced it."""
    # Those that are not known are named: by what it is not, no index leads to a row.
    unknown = ROWS.c.step.in_([each.value for each in Step if each not in receiver.steps.all])
    if is_known or receiver.steps.first is Step.DELIVER:
        return unknown
    of_unit = (KEYS.c.receiver == ROWS.c.receiver) & (KEYS.c.key == ROWS.c.key)
    is_announced = select(KEYS.c.is_announced).where(of_unit).scalar_subquery()
    return unknown | ((ROWS.c.step == Step.DELIVER.value) & ~is_announced)


_PAST = (JOBS.c.taken_at, JOBS.c.caught_up_at, JOBS.c.completed_at)


def end_long_pauses(database: Database, receiver: Receiver, name: str, pauses: Unchanged) -> int:
    """End pauses of rows, and of a probe, that last longer than they can have been meant to; return how many.

    `pauses` are those that this process has noticed: from then on each lasts as long as it can have been meant to. So a clock
    that is behind for one look shortens none.
    """
    longest = _longest(receiver)
    paused = (ROWS.c.receiver == name, ROWS.c.step.in_([each.value for each in Step]), IS_HEAD, ROWS.c.owner.is_(None))
    with database.read() as connection:
        gate, latest = read_gate(connection, name), database.now(connection) + SKEW_MS
        # All of them, each with its instant: rows that were written together wait until the same one.
        far = select(ROWS.c.due_at, longest).where(*paused, ROWS.c.due_at > latest, ROWS.c.due_at - longest > latest)
        found = {(due_at, pause) for due_at, pause in connection.execute(far.distinct())}
    if gate.state is GateState.SHUT and gate.probe_at > latest + receiver.suspension.max_ms:
        found.add((gate.probe_at, gate.pause_ms))
    over = [pause for pause, since_ms in pauses.look(dict.fromkeys(found)).items() if since_ms >= pause[1]]
    if not over:
        return 0
    with database.write() as connection:
        gate, now = lock_gate(connection, name), database.now(connection)
        if is_probe := (gate.probe_at, gate.pause_ms) in over:
            write_gate(connection, name, msgspec.structs.replace(gate, probe_at=now))
    ended = int(is_probe)
    for pause in sorted({each for _, each in over}):
        for instants in chunks([due_at for due_at, each in over if each == pause]):
            far = select(ROWS.c.id).where(*paused, ROWS.c.due_at.in_(instants), longest == pause)
            while some := _end_some(database, name, far):
                ended += some
    return ended


def _end_some(database: Database, name: str, far: Select[Any]) -> int:
    """Let some of the rows continue; return how many."""
    with database.write() as connection:
        lock_gate(connection, name)
        now = database.now(connection)
        some = far.where(ROWS.c.due_at > now).limit(_CHUNK)
        return connection.execute(update(ROWS).where(ROWS.c.id.in_(some)).values(due_at=now)).rowcount


def date_back(database: Database) -> int:
    """Let some rows and jobs that end in the future have ended now, so that their retention begins; return how many rows.

    Only where the clock is trusted: it cannot be undone.
    """
    with database.read() as connection:
        latest = database.now(connection) + SKEW_MS
        later = exists().where(ROWS.c.job == JOBS.c.id, ROWS.c.ended_at > latest)
        is_gone_later = exists().where(SOURCES.c.job == JOBS.c.id, SOURCES.c.gone_at > latest)
        is_later = or_(later, is_gone_later, *(column > latest for column in _PAST))
        jobs = list(connection.scalars(select(JOBS.c.id).where(is_later)))
    dated = 0
    for job in jobs if database.clock.was_trusted else []:
        with database.write() as connection:
            now = database.now(connection)
            if not database.clock.was_trusted:
                break
            latest = now + SKEW_MS
            some = select(ROWS.c.id).where(ROWS.c.job == job, ROWS.c.ended_at > latest).limit(_CHUNK)
            dated += connection.execute(update(ROWS).where(ROWS.c.id.in_(some)).values(ended_at=now)).rowcount
            for column in _PAST:
                connection.execute(update(JOBS).where(JOBS.c.id == job, column > latest).values({column.name: now}))
            connection.execute(update(SOURCES).where(SOURCES.c.job == job, SOURCES.c.gone_at > latest).values(gone_at=now))
    return dated


def _longest(receiver: Receiver) -> ColumnElement[Any]:
    """Return for how long a row waits at most after what happened to it last."""
    back_off = max(receiver.retry.max_ms, *receiver.retry.intervals_ms, 0)
    of_mode = {
        RetryMode.SUSPENSION: receiver.suspension.max_ms,
        RetryMode.VERIFICATION: receiver.verify.delay_ms,
        RetryMode.BACK_OFF: round(back_off * (1 + receiver.retry.jitter)),
        RetryMode.LIMIT: max(receiver.suspension.max_ms, round(back_off * (1 + receiver.retry.jitter))),
    }
    whens = [(ROWS.c.mode == mode.value, longest) for mode, longest in of_mode.items()]
    return case(*whens, (ROWS.c.status == Status.IN_PROGRESS.value, receiver.verify.delay_ms), else_=0)


_LOOKED, _WENT_AHEAD = "looked-at", "went-ahead-at"
_MAX_AHEAD_MS, _NOTED_MS = 86_400_000, 3_600_000
"""By how much the clock advances between two looks if it is right and workers run, and how often a look is noted."""


def delete_expired(database: Database, retention_ms: int) -> int:
    """Delete some of what ended before the retention; return how much.

    These are rows, with keys and ended jobs that have no rows any more, published events, and the positions in files that are
    gone. Of the live jobs the time counts while their intake has read everything: a notification that comes a second time, after
    its topic was unavailable for days, still finds its first row. Rows of other jobs stay until the job has ended. A failed row
    that holds its unit stays until an operator decides. Nothing is deleted by a clock that is not trusted, nor for a whole
    retention after the clock has gone ahead by more than a day between two looks: what ended before may have ended just now.
    """
    if _note_look(database, retention_ms):
        return 0
    with database.read() as connection:
        before = database.now(connection) - retention_ms
        if not database.clock.was_trusted:
            return 0
        rows = _expired_rows(connection, before, retention_ms)
        # A statement that finds nothing would wait for the lock, too, and make others wait.
        has_others = not rows and any(_others(connection, before, retention_ms))
    if rows:
        return _delete_rows(database, retention_ms, rows)
    if has_others:
        _delete_others(database, retention_ms)
    return 0


def _note_look(database: Database, retention_ms: int) -> bool:
    """Note the look; return whether a retention has not passed since the clock went ahead. Looks of any process count."""
    asked = select(COUNTERS.c.name, COUNTERS.c.value).where(COUNTERS.c.name.in_([_LOOKED, _WENT_AHEAD]))
    with database.read() as connection:
        now = database.now(connection)
        known = {each.name: each.value for each in connection.execute(asked)}
    looked_at, ahead_at = known.get(_LOOKED), known.get(_WENT_AHEAD, 0)
    if looked_at is not None and now - looked_at > _MAX_AHEAD_MS:
        ahead_at = now
    ahead_at = min(ahead_at, now)  # It was noted by a clock that was ahead itself.
    if looked_at is None or abs(now - looked_at) >= _NOTED_MS or ahead_at != known.get(_WENT_AHEAD, 0):
        with database.write() as connection:
            insert = sqlite.insert if database.is_sqlite else postgresql.insert
            note = insert(COUNTERS)
            note = note.on_conflict_do_update(index_elements=[COUNTERS.c.name], set_={"value": note.excluded.value})
            connection.execute(note, [{"name": _LOOKED, "value": now}, {"name": _WENT_AHEAD, "value": ahead_at}])
    return bool(now < ahead_at + retention_ms)


def _expired_rows(connection: Connection, before: Instant, retention_ms: int) -> list[Any]:
    """Return some rows to delete. Nothing is locked, and an index leads to each, past those of jobs that are open."""
    until = _until(before, retention_ms)
    has_expired = exists().where(ROWS.c.job == JOBS.c.id, ROWS.c.ended_at < until)
    found: list[Any] = []
    for job, last in connection.execute(select(JOBS.c.id, until).where(_lets_go(), has_expired)).all():
        of_job = _unheld().where(ROWS.c.job == job, ROWS.c.ended_at < last)
        found += connection.execute(of_job.order_by(ROWS.c.ended_at).limit(_CHUNK - len(found))).all()
        if len(found) == _CHUNK:
            break
    return found


def _delete_rows(database: Database, retention_ms: int, rows: list[Any]) -> int:
    with database.write() as connection:
        before = database.now(connection) - retention_ms
        if not database.clock.was_trusted:
            return 0
        for receiver in sorted({each.receiver for each in rows}):
            _lock_keys(connection, receiver, sorted({each.key for each in rows if each.receiver == receiver}))
        # Once more behind the locks: a row, or its job, may be open again by now, or hold its unit.
        letting_go = select(JOBS.c.id, _until(before, retention_ms)).where(_lets_go(), JOBS.c.id.in_({each.job for each in rows}))
        until = {each[0]: each[1] for each in connection.execute(letting_go)}
        asked = _unheld().where(ROWS.c.id.in_([each.id for each in rows]), ROWS.c.ended_at.is_not(None)).with_for_update(of=ROWS)
        ids = [each.id for each in connection.execute(asked) if each.ended_at < until.get(each.job, 0)]
        if ids:
            connection.execute(delete(ERRORS).where(ERRORS.c.row.in_(ids)))
            connection.execute(delete(ROWS).where(ROWS.c.id.in_(ids)))
        for receiver in sorted({each.receiver for each in rows}):
            _delete_empty_keys(connection, receiver, sorted({each.key for each in rows if each.receiver == receiver}))
    return len(ids)


def _others(connection: Connection, before: Instant, retention_ms: int) -> tuple[list[str], list[Any], list[int]]:
    """Return some ended jobs without rows, positions in files that are gone, and published events: what is to be deleted."""
    jobs = select(JOBS.c.id).where(JOBS.c.completed_at < before, ~exists().where(ROWS.c.job == JOBS.c.id))
    # One that was put back while the workers stood still is found before its time is over, as a row of a live job is.
    is_over = SOURCES.c.gone_at < _until(before, retention_ms)
    of_jobs = select(SOURCES.c.job, SOURCES.c.part).join(JOBS, JOBS.c.id == SOURCES.c.job)
    # Nor is it forgotten how far a file was read that went before its end: what was read must not be delivered again with it.
    parts = of_jobs.where(_lets_go(), SOURCES.c.gone_at < before, is_over, JOBS.c.missing == 0)
    ended = list(connection.scalars(jobs.limit(_CHUNK)))
    return ended, [tuple(each) for each in connection.execute(parts.limit(_CHUNK))], published_events(connection, before, _CHUNK)


def _delete_others(database: Database, retention_ms: int) -> None:
    with database.write() as connection:
        before = database.now(connection) - retention_ms
        if not database.clock.was_trusted:
            return
        jobs, parts, events = _others(connection, before, retention_ms)
        connection.execute(delete(SOURCES).where(SOURCES.c.job.in_(jobs)))
        connection.execute(delete(JOBS).where(JOBS.c.id.in_(jobs)))
        connection.execute(delete(SOURCES).where(tuple_(SOURCES.c.job, SOURCES.c.part).in_(parts)))
        connection.execute(delete(EVENTS).where(EVENTS.c.number.in_(events)))


def _lets_go() -> ColumnElement[bool]:
    """Return whether a job deletes rows that have ended."""
    return JOBS.c.is_live | JOBS.c.completed_at.is_not(None)


def _until(before: Instant, retention_ms: int) -> ColumnElement[Any]:
    """Return before when a row of a job must have ended to be deleted.

    The live jobs of a receiver remember together: for each of them it is what the one allows that is furthest behind.
    """
    others = JOBS.alias()
    is_reading = others.c.is_live & others.c.completed_at.is_(None) & others.c.cancelled_at.is_(None)
    together = select(func.min(others.c.caught_up_at)).where(
        others.c.receiver == JOBS.c.receiver, is_reading, others.c.source != SCHEDULE
    )
    remembers_together = JOBS.c.is_live & (JOBS.c.source != SCHEDULE)
    caught_up_at = case((remembers_together, together.correlate(JOBS).scalar_subquery()), else_=JOBS.c.caught_up_at)
    is_behind = JOBS.c.completed_at.is_(None) & (caught_up_at - retention_ms < before)
    return case((is_behind, caught_up_at - retention_ms), else_=before)


def _unheld() -> Select[Any]:
    holds = exists().where(KEYS.c.receiver == ROWS.c.receiver, KEYS.c.held_by == ROWS.c.id)
    return select(ROWS.c.id, ROWS.c.receiver, ROWS.c.key, ROWS.c.job, ROWS.c.ended_at).where(~holds)


def _lock_keys(connection: Connection, receiver: str, keys: list[str]) -> None:
    """Lock keys before their rows, as everywhere in the ledger: no intake puts a row into one meanwhile."""
    of = (KEYS.c.receiver == receiver, KEYS.c.key.in_(keys))
    connection.execute(select(KEYS.c.key).where(*of).order_by(KEYS.c.key).with_for_update())


def _delete_empty_keys(connection: Connection, receiver: str, keys: list[str]) -> None:
    """Delete keys without rows."""
    of = (KEYS.c.receiver == receiver, KEYS.c.key.in_(keys), KEYS.c.held_by.is_(None))
    rows = exists().where(ROWS.c.receiver == receiver, ROWS.c.key == KEYS.c.key)
    # Two questions, for each of which there is an index.
    connection.execute(delete(KEYS).where(*of, ~rows.where(IS_OPEN), ~rows.where(ROWS.c.ended_at.is_not(None))))
