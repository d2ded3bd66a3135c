"""Repairs what was written while the clock was ahead: each such instant counts as made when it is noticed."""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, case, exists, or_, select, update

from notification_service.delivery.core.gate import GateState
from notification_service.delivery.core.jobs import RetryMode, Status
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.gates import lock_gate, read_gate, write_gate
from notification_service.delivery.ledger.tables import IS_HEAD, JOBS, ROWS, SOURCES, chunks
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import SKEW_MS, Unchanged

_CHUNK = 1_000
_PAST = (JOBS.c.taken_at, JOBS.c.caught_up_at, JOBS.c.completed_at)


def end_long_pauses(database: Database, receiver: Receiver, name: str, pauses: Unchanged) -> int:
    """Let rows, and a probe, go on that rest for longer than they can have been meant to; return how many.

    `pauses` are those that this process has noticed: from then on each lasts as long as it can have been meant to. So a clock
    that is behind for one look shortens none.
    """
    longest = _longest(receiver)
    rests = (ROWS.c.receiver == name, ROWS.c.step.in_([each.value for each in Step]), IS_HEAD, ROWS.c.owner.is_(None))
    with database.read() as connection:
        gate, latest = read_gate(connection, name), database.now(connection) + SKEW_MS
        # All of them, each with its instant: rows that were written together rest until the same one.
        far = select(ROWS.c.due_at, longest).where(*rests, ROWS.c.due_at > latest, ROWS.c.due_at - longest > latest)
        found = {(due_at, pause) for due_at, pause in connection.execute(far.distinct())}
    if gate.state is GateState.SHUT and gate.probe_at > latest + receiver.suspension.max_ms:
        found.add((gate.probe_at, gate.pause_ms))
    over = [rest for rest, since_ms in pauses.look(dict.fromkeys(found)).items() if since_ms >= rest[1]]
    if not over:
        return 0
    with database.write() as connection:
        gate, now = lock_gate(connection, name), database.now(connection)
        if is_probe := (gate.probe_at, gate.pause_ms) in over:
            write_gate(connection, name, msgspec.structs.replace(gate, probe_at=now))
    ended = int(is_probe)
    for pause in sorted({each for _, each in over}):
        for instants in chunks([due_at for due_at, each in over if each == pause]):
            far = select(ROWS.c.id).where(*rests, ROWS.c.due_at.in_(instants), longest == pause)
            while some := _end_some(database, name, far):
                ended += some
    return ended


def _end_some(database: Database, name: str, far: Select[Any]) -> int:
    """Let some of the rows go on; return how many."""
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
    """Return for how long a row rests at most after what happened to it last."""
    back_off = max(receiver.retry.max_ms, *receiver.retry.intervals_ms, 0)
    of_mode = {
        RetryMode.SUSPENSION: receiver.suspension.max_ms,
        RetryMode.VERIFICATION: receiver.verify.delay_ms,
        RetryMode.BACK_OFF: round(back_off * (1 + receiver.retry.jitter)),
        RetryMode.LIMIT: max(receiver.suspension.max_ms, round(back_off * (1 + receiver.retry.jitter))),
    }
    whens = [(ROWS.c.mode == mode.value, longest) for mode, longest in of_mode.items()]
    return case(*whens, (ROWS.c.status == Status.IN_PROGRESS.value, receiver.verify.delay_ms), else_=0)
