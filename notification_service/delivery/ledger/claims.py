"""Claims: a delivery worker takes rows on, under a lease.

A lease is over when another process has seen the claim unchanged for the whole length of it. No instant decides: the clock may
have been wrong when the claim was made, or may be wrong now.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, func, select, update

from notification_service.delivery.core.gate import GateState
from notification_service.delivery.core.jobs import Claim, Tries
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.gates import lock_gate, read_gate, write_gate
from notification_service.delivery.ledger.job_orders import cancel_found
from notification_service.delivery.ledger.tables import IS_HEAD, JOBS, ROWS
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import Unchanged
from resequencer.record import Headers

_headers = msgspec.json.Decoder(Headers)
_CLAIM = (
    update(ROWS)
    .where(ROWS.c.id == bindparam("row"))
    .values(owner=bindparam("new_owner"), epoch=ROWS.c.epoch + 1, due_at=bindparam("until"))
)
_CANCELLED_AT = select(JOBS.c.cancelled_at).where(JOBS.c.id == ROWS.c.job).scalar_subquery().label("cancelled_at")
_COLUMNS = ("id", "epoch", "key", "attempts", "questions", "limits", "notification_id", "headers", "value", "job")


_RUNNING = select(ROWS.c.id).where(ROWS.c.owner.is_not(None))


class Claimed(NamedTuple):
    """The claims, and after how many ms there may be more; None: not before something changes."""

    claims: list[Claim]
    wait_ms: int | None


def lease_ms(receiver: Receiver) -> int:
    """Return how long a claim lasts: twice the time limit of a call, and ten seconds more."""
    return 2 * receiver.timeout_ms + 10_000


def claim(database: Database, receiver: Receiver, name: str, step: Step, owner: str, wanted: int, seen: Unchanged) -> Claimed:
    """Take on up to `wanted` due rows of a step, for the time of a lease. `seen` are the claims that this process has seen.

    Only the first open row of each key is there to be taken. Nothing is locked or written while nothing is due. Where rows of
    cancelled jobs are met they end, and nothing is taken on this time.
    """
    waiting, lapsed = _look(database, receiver, name, step, seen)
    if lapsed:
        _release(database, receiver, name, lapsed)
    if waiting != 0:
        return Claimed([], waiting)
    with database.write() as connection:
        gate, now = lock_gate(connection, name), database.now(connection)
        running = set(connection.scalars(_RUNNING.where(ROWS.c.receiver == name)))
        if gate.probe not in running:
            gate = gate.without_probe()  # Its worker has died, or it was cancelled meanwhile.
        permitted = gate.permits(receiver, now, len(running), wanted)
        if permitted == 0:
            return Claimed([], None)
        until = now + lease_ms(receiver)
        due = (
            select(*(ROWS.c[each] for each in _COLUMNS), _CANCELLED_AT)
            .where(ROWS.c.receiver == name, ROWS.c.step == step.value, IS_HEAD, ROWS.c.due_at <= now, ROWS.c.owner.is_(None))
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
        begun = gate.begun(receiver, now, [each.id for each in found])
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
            tries=Tries(each.attempts, each.questions, each.limits),
            notification_id=each.notification_id,
            headers=_headers.decode(each.headers),
            value=each.value,
            job=each.job,
        )
        for each in found
    ]
    return Claimed(claims, 0 if len(claims) == wanted else None)


def _look(
    database: Database, receiver: Receiver, name: str, step: Step, seen: Unchanged
) -> tuple[int | None, list[tuple[int, int]]]:
    """Return after how many ms something can be claimed, and the claims that have lapsed, with their epochs.

    0 is now, None is not known. Nothing is locked.
    """
    with database.read() as connection:
        asked = _RUNNING.add_columns(ROWS.c.epoch).where(ROWS.c.receiver == name)
        running = {row: epoch for row, epoch in connection.execute(asked)}  # noqa: C416 - Rows are no pairs for the types.
        since = seen.look(dict.fromkeys(running.items()))
        if lapsed := [each for each, since_ms in since.items() if since_ms >= lease_ms(receiver)]:
            return 0, lapsed
        gate, now = read_gate(connection, name), database.now(connection)
        if gate.pause is not None or (gate.state is GateState.SHUT and gate.probe in running):
            return None, []
        if gate.state is GateState.SHUT and gate.probe_at > now:
            return gate.probe_at - now, []
        waiting = (ROWS.c.receiver == name, ROWS.c.step == step.value, IS_HEAD, ROWS.c.owner.is_(None))
        first = connection.scalar(select(func.min(ROWS.c.due_at)).where(*waiting))
    return None if first is None else max(0, first - now), []


def _release(database: Database, receiver: Receiver, name: str, lapsed: Sequence[tuple[int, int]]) -> None:
    """Give rows back whose claims have lapsed, unless another process has done it meanwhile."""
    epochs = dict(lapsed)
    with database.write() as connection:
        finishing = Finishing(connection, receiver, name, database.now(connection))
        keys = connection.scalars(select(ROWS.c.key).where(ROWS.c.id.in_(list(epochs))))
        finishing.lock(set(keys))
        finishing.load(list(epochs))
        for number, row in finishing.rows.items():
            if row["owner"] is not None and row["epoch"] == epochs[number]:
                finishing.give_back(row)
        finishing.write()


def running_calls(connection: Connection, name: str) -> int:
    """Return how many calls to the receiver are under way, as far as is known: a claim counts until its lease is over."""
    asked = select(func.count()).where(ROWS.c.receiver == name, ROWS.c.owner.is_not(None))
    found: int = connection.scalar(asked) or 0
    return found
