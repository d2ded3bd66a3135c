"""Retention: deletes rows that ended long ago. Afterwards a repeated notification is delivered again."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, delete, exists, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finding import SCHEDULE
from notification_service.delivery.ledger.services import published_events
from notification_service.delivery.ledger.tables import COUNTERS, ERRORS, EVENTS, IS_OPEN, JOBS, KEYS, ROWS, SOURCES
from resequencer.clock import Instant

_CHUNK = 1_000
_LOOKED, _WENT_AHEAD = "looked-at", "went-ahead-at"
_MAX_AHEAD_MS, _NOTED_MS = 86_400_000, 3_600_000
"""By how much the clock goes on between two looks if it is right and workers run, and how often a look is noted."""


def delete_expired(database: Database, retention_ms: int) -> int:
    """Delete some of what ended before the retention; return how much.

    These are rows, with keys and ended jobs that have no rows any more, published events, and the positions in files that are
    gone. Of the live jobs the time counts while their intake has read everything: a notification that comes a second time, after
    its topic was unavailable for days, still finds its first row. Rows of other jobs stay until the job has ended. A failed row
    that holds its unit stays until an operator decides. Nothing is deleted by a clock that is not trusted, nor for a whole
    retention after the clock has gone ahead by more than a day between two looks: what ended before may have ended just now.
    """
    if _rests(database, retention_ms):
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


def _rests(database: Database, retention_ms: int) -> bool:
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
