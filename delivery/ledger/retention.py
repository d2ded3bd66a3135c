"""Retention: deletes rows that ended long ago. Afterwards a repeated notification is delivered again."""

from sqlalchemy import Connection, delete, exists, select

from delivery.ledger.database import Database
from delivery.ledger.tables import ERRORS, IS_OPEN, JOBS, KEYS, ROWS, SOURCES

_CHUNK = 1_000


def delete_expired(database: Database, retention_ms: int) -> int:
    """Delete some rows that ended before the retention, with keys and ended jobs that have no rows left; return how many rows.

    Of the live jobs the time counts while their intake has read everything: a notification that comes a second time, after its
    topic was unavailable for days, still finds its first row. Rows of other jobs stay until the job has ended. A failed row that
    holds its unit stays until an operator decides. Nothing is deleted by a clock that is not trusted.
    """
    with database.write() as connection:
        now = database.now(connection)
        if not database.clock.was_trusted:
            return 0
        before = now - retention_ms
        is_over = (JOBS.c.is_live & (ROWS.c.ended_at < JOBS.c.caught_up_at - retention_ms)) | JOBS.c.completed_at.is_not(None)
        holds = exists().where(KEYS.c.receiver == ROWS.c.receiver, KEYS.c.held_by == ROWS.c.id)
        asked = (
            select(ROWS.c.id, ROWS.c.receiver, ROWS.c.key)
            .join(JOBS, JOBS.c.id == ROWS.c.job)
            .where(ROWS.c.ended_at < before, is_over, ~holds)
            .order_by(ROWS.c.ended_at)
            .limit(_CHUNK)
        )
        expired = connection.execute(asked).all()
        for receiver in sorted({each.receiver for each in expired}):
            _lock_keys(connection, receiver, sorted({each.key for each in expired if each.receiver == receiver}))
        # Once more behind the locks: a row may be open again by now, or hold its unit.
        still = asked.where(ROWS.c.id.in_([each.id for each in expired])).with_for_update(of=ROWS)
        ids = [each.id for each in connection.execute(still)] if expired else []
        if ids:
            connection.execute(delete(ERRORS).where(ERRORS.c.row.in_(ids)))
            connection.execute(delete(ROWS).where(ROWS.c.id.in_(ids)))
        for receiver in sorted({each.receiver for each in expired}):
            _delete_empty_keys(connection, receiver, sorted({each.key for each in expired if each.receiver == receiver}))
        empty = select(JOBS.c.id).where(JOBS.c.completed_at < before, ~exists().where(ROWS.c.job == JOBS.c.id))
        jobs = list(connection.scalars(empty)) if not ids else []
        if jobs:
            connection.execute(delete(SOURCES).where(SOURCES.c.job.in_(jobs)))
            connection.execute(delete(JOBS).where(JOBS.c.id.in_(jobs)))
    return len(ids)


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
