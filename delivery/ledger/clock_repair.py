"""Repairs what was written while the clock was ahead: each such instant counts as made when it is noticed."""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, case, exists, or_, select, update

from delivery.core.gate import GateState
from delivery.core.rows import RetryMode, Status
from delivery.ledger.database import Database
from delivery.ledger.gates import lock_gate, read_gate, write_gate
from delivery.ledger.tables import IS_HEAD, JOBS, ROWS
from delivery.settings import Receiver, Step
from domain.steady_clock import SKEW_MS, Unchanged

_CHUNK = 1_000
_PAST = (JOBS.c.taken_at, JOBS.c.caught_up_at, JOBS.c.completed_at)


def end_long_pauses(database: Database, receiver: Receiver, name: str, pauses: Unchanged) -> int:
    """Let rows, and a probe, go on that rest for longer than they can have been meant to; return how many.

    `pauses` are those that this process has noticed: from then on each lasts as long as it can have been meant to. So a clock
    that is behind for one look shortens none.
    """
    with database.read() as connection:
        now, gate = database.now(connection), read_gate(connection, name)
        longest = _longest(receiver)
        of_any_step = (
            ROWS.c.receiver == name,
            ROWS.c.step.in_([each.value for each in Step]),
            ROWS.c.due_at > now + SKEW_MS,
            IS_HEAD,
        )
        far = select(ROWS.c.id, ROWS.c.due_at, longest).where(
            *of_any_step, ROWS.c.owner.is_(None), ROWS.c.due_at - longest > now + SKEW_MS
        )
        found = {row: (due_at, pause) for row, due_at, pause in connection.execute(far.limit(_CHUNK))}
    facts: dict[int, int] = {row: due_at for row, (due_at, _) in found.items()}
    if gate.state is GateState.SHUT and gate.probe_at > now + SKEW_MS + receiver.suspension.most_ms:
        facts[0] = gate.probe_at
        found[0] = (gate.probe_at, gate.pause_ms)
    over = [row for row, since_ms in pauses.look(facts).items() if since_ms >= found[row][1]]
    if not over:
        return 0
    with database.write() as connection:
        gate, now = lock_gate(connection, name), database.now(connection)
        if 0 in over and gate.probe_at == facts[0]:
            write_gate(connection, name, msgspec.structs.replace(gate, probe_at=now))
        for row in over:
            is_same = (ROWS.c.id == row, ROWS.c.due_at == facts[row], ROWS.c.owner.is_(None))
            connection.execute(update(ROWS).where(*is_same).values(due_at=now))
    return len(over)


def date_back(database: Database) -> int:
    """Let some rows and jobs that end in the future have ended now, so that their retention begins; return how many rows.

    Only where the clock is trusted: it cannot be undone.
    """
    with database.read() as connection:
        latest = database.now(connection) + SKEW_MS
        later = exists().where(ROWS.c.job == JOBS.c.id, ROWS.c.ended_at > latest)
        jobs = list(connection.scalars(select(JOBS.c.id).where(or_(later, *(column > latest for column in _PAST)))))
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
    return dated


def _longest(receiver: Receiver) -> ColumnElement[Any]:
    """Return for how long a row rests at most after what happened to it last."""
    back_off = max(receiver.retry.most_ms, *receiver.retry.intervals_ms, 0)
    of_mode = {
        RetryMode.SUSPENSION: receiver.suspension.most_ms,
        RetryMode.VERIFICATION: receiver.verify.delay_ms,
        RetryMode.BACK_OFF: round(back_off * (1 + receiver.retry.jitter)),
        RetryMode.LIMIT: max(receiver.suspension.most_ms, round(back_off * (1 + receiver.retry.jitter))),
    }
    whens = [(ROWS.c.mode == mode.value, longest) for mode, longest in of_mode.items()]
    return case(*whens, (ROWS.c.status == Status.IN_PROGRESS.value, receiver.verify.delay_ms), else_=0)
