"""Claims: a delivery worker takes rows on, under a lease."""

from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, func, select, update

from delivery.core.gate import GateState
from delivery.core.rows import Claim, Tries
from delivery.ledger.cancelling import cancel_found
from delivery.ledger.database import Database
from delivery.ledger.gates import lock_gate, read_gate, write_gate
from delivery.ledger.tables import IS_HEAD, JOBS, ROWS
from delivery.settings import Receiver, Step
from domain.clock import Instant
from domain.record import Headers

_headers = msgspec.json.Decoder(Headers)
_CLAIM = (
    update(ROWS)
    .where(ROWS.c.id == bindparam("row"))
    .values(owner=bindparam("new_owner"), epoch=ROWS.c.epoch + 1, due_at=bindparam("until"))
)
_CANCELLED_AT = select(JOBS.c.cancelled_at).where(JOBS.c.id == ROWS.c.job).scalar_subquery().label("cancelled_at")
_COLUMNS = ("id", "epoch", "key", "attempts", "questions", "notification_id", "headers", "value", "job")


class Claimed(NamedTuple):
    """The claims, and after how many ms there may be more; None: not before something changes."""

    claims: list[Claim]
    wait_ms: int | None


def lease_ms(receiver: Receiver) -> int:
    """Return how long a claim lasts: twice the time limit of a call, and ten seconds more."""
    return 2 * receiver.timeout_ms + 10_000


def claim(database: Database, receiver: Receiver, name: str, step: Step, owner: str, wanted: int) -> Claimed:
    """Take on up to `wanted` due rows of a step, for the time of a lease.

    Only the first open row of each key is there to be taken. Nothing is locked or written while nothing is due. Where rows of
    cancelled jobs are met they end, and nothing is taken on this time.
    """
    waiting = _find_wait(database, name, step)
    if waiting != 0:
        return Claimed([], waiting)
    with database.write() as connection:
        gate, now = lock_gate(connection, name), database.now(connection)
        permitted = gate.permits(receiver, now, running_calls(connection, name, now), wanted)
        if permitted == 0:
            return Claimed([], None)
        until = now + lease_ms(receiver)
        due = (
            select(*(ROWS.c[each] for each in _COLUMNS), _CANCELLED_AT)
            .where(ROWS.c.receiver == name, ROWS.c.step == step.value, IS_HEAD, ROWS.c.due_at <= now)
            .order_by(ROWS.c.due_at)
            .limit(permitted)
            .with_for_update(skip_locked=True, of=ROWS)
        )
        found = connection.execute(due).all()
        if not found:
            return Claimed([], None)
        cancelled = [(each.id, each.key) for each in found if each.cancelled_at is not None]
        found = [] if cancelled else found
        if found:
            connection.execute(_CLAIM, [{"row": each.id, "new_owner": owner, "until": until} for each in found])
        begun = gate.begun(receiver, now, [each.id for each in found], until)
        if begun != gate:
            write_gate(connection, name, begun)
    if cancelled:
        cancel_found(database, receiver, name, cancelled)
        return Claimed([], 0)
    claims = [
        Claim(
            row=each.id,
            epoch=each.epoch + 1,
            receiver=name,
            key=each.key,
            step=step,
            tries=Tries(each.attempts, each.questions),
            notification_id=each.notification_id,
            headers=_headers.decode(each.headers),
            value=each.value,
            job=each.job,
        )
        for each in found
    ]
    return Claimed(claims, 0 if len(claims) == wanted else None)


def _find_wait(database: Database, name: str, step: Step) -> int | None:
    """Return after how many ms something can be claimed: 0 is now, None is not known. A question that locks nothing."""
    with database.read() as connection:
        gate, now = read_gate(connection, name), database.now(connection)
        if gate.state is GateState.SHUT:
            probe_at = gate.probe_at if gate.probe is None else max(gate.probe_at, gate.probe_until)
            if probe_at > now:
                return probe_at - now
        first = connection.scalar(
            select(func.min(ROWS.c.due_at)).where(ROWS.c.receiver == name, ROWS.c.step == step.value, IS_HEAD)
        )
    return None if first is None else max(0, first - now)


def running_calls(connection: Connection, name: str, now: Instant) -> int:
    """Return how many calls to the receiver are under way."""
    asked = select(func.count()).where(ROWS.c.receiver == name, ROWS.c.owner.is_not(None), ROWS.c.due_at > now)
    found: int = connection.scalar(asked) or 0
    return found
