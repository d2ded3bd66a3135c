"""Orders for a receiver: its gate, its pause, a unit that is held, and a row that is called now."""

from sqlalchemy import Connection, bindparam, select, update

from notification_service.delivery.core.gate import GateState
from notification_service.delivery.core.jobs import ENDS, Pause, Status
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.gates import lock_gate, write_gate
from notification_service.delivery.ledger.intake import LONGEST_REASON
from notification_service.delivery.ledger.tables import IS_HEAD, ROWS
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import instant_text

_ROW_BITS = 63
"""No database has a greater number."""


def release_unit(database: Database, receivers: dict[str, Receiver], receiver: str, unit: str) -> None:
    """Let a held unit continue with its next row; what failed stays failed.

    Raises:
        JobRefused: The unit is not held.
    """
    with database.write() as connection:
        finishing = Finishing(connection, receivers[receiver], receiver, database.now(connection))
        if "\x00" not in unit:
            finishing.lock({unit})
        if unit not in finishing.keys or finishing.keys[unit]["held_by"] is None:
            raise JobRefused(f"unit {unit} is not held for {receiver}")
        finishing.keys[unit]["held_by"] = None
        finishing.freed.add(unit)
        finishing.write()


def open_gate(database: Database, receiver: str) -> None:
    """Open a shut gate: rows continue as they are due."""
    with database.write() as connection:
        gate = lock_gate(connection, receiver)
        if gate.state is GateState.OPEN:
            raise JobRefused(f"the gate of {receiver} is open")
        now = database.now(connection)
        write_gate(connection, receiver, gate.opened(now))
        resting = (ROWS.c.receiver == receiver, IS_HEAD, ROWS.c.status == Status.RETRY.value, ROWS.c.mode == "suspension")
        connection.execute(update(ROWS).where(*resting, ROWS.c.owner.is_(None)).values(due_at=now))


def pause_receiver(database: Database, receiver: str, by: str, because: str) -> None:
    """Let no call for the receiver begin, of any worker, until it is resumed. What is under way ends.

    Raises:
        JobRefused: It is paused already, or there is no reason.
    """
    if not because.strip():
        raise JobRefused("say why; the reason is kept with the receiver")
    with database.write() as connection:
        gate = lock_gate(connection, receiver)
        if gate.pause is not None:
            raise JobRefused(f"{receiver} is {gate.pause.text}")
        since = instant_text(database.now(connection))
        write_gate(connection, receiver, gate.paused(Pause(since, by, because.strip()[:LONGEST_REASON])))


def resume_receiver(database: Database, receiver: str) -> None:
    """Let calls for a paused receiver begin again; its gate is as it was.

    Raises:
        JobRefused: It is not paused.
    """
    with database.write() as connection:
        gate = lock_gate(connection, receiver)
        if gate.pause is None:
            raise JobRefused(f"{receiver} is not paused")
        write_gate(connection, receiver, gate.paused(None))


def retry_now(database: Database, receiver: str, row: int | None) -> int:
    """Let a row that waits be called now, or, without one, a shut gate try now whether its receiver is awake.

    Returns the row. While the gate is shut it is the next probe, if it is claimed before another due row. A call that is under
    way is not repeated: only a row that no worker has claimed is made due, and a claim waits for the end of this transaction.

    Raises:
        JobRefused: Nothing can be called now; the text says why.
    """
    with database.write() as connection:
        gate, now = lock_gate(connection, receiver), database.now(connection)
        if gate.pause is not None:
            raise JobRefused(f"{receiver} is {gate.pause.text}; resume it first")
        if row is None and gate.state is GateState.OPEN:
            raise JobRefused(f"the gate of {receiver} is open; name the row that is to be called now")
        is_running = select(ROWS.c.id).where(ROWS.c.id == gate.probe, ROWS.c.owner.is_not(None))
        if gate.state is GateState.SHUT and connection.scalar(is_running) is not None:
            raise JobRefused(f"a call that tries {receiver} is under way: its answer says whether the gate opens")
        if row is not None and row.bit_length() > _ROW_BITS:
            raise JobRefused(f"there is no row {row} for {receiver}")
        heads = (ROWS.c.receiver == receiver, IS_HEAD, ROWS.c.owner.is_(None), ROWS.c.step == bindparam("due"))
        first = select(ROWS.c.id, ROWS.c.due_at).where(*heads).order_by(ROWS.c.due_at).limit(1)
        # One index has the rows of each step in this order.
        found = [each for step in Step for each in connection.execute(first, {"due": step.value})]
        if not found and row is None:
            raise JobRefused(f"nothing waits for {receiver}, so there is nothing to try")
        earliest = min(found, key=lambda each: each.due_at, default=None)
        chosen = row if row is not None or earliest is None else int(earliest.id)
        due_at = now if earliest is None else min(now, earliest.due_at - 1)
        of_row = (ROWS.c.id == chosen, ROWS.c.receiver == receiver, IS_HEAD, ROWS.c.owner.is_(None))
        if not connection.execute(update(ROWS).where(*of_row).values(due_at=due_at)).rowcount:
            raise JobRefused(_why_not_now(connection, receiver, chosen))
        if gate.state is GateState.SHUT:
            write_gate(connection, receiver, gate.probed_now(now))
        return int(chosen or 0)


def _why_not_now(connection: Connection, receiver: str, row: int | None) -> str:
    asked = select(ROWS.c.status, ROWS.c.owner, ROWS.c.key, ROWS.c.job).where(ROWS.c.id == row, ROWS.c.receiver == receiver)
    found = connection.execute(asked).first()
    if found is None:
        return f"there is no row {row} for {receiver}; `resequencer delivery waiting` lists those that wait"
    if found.status == Status.FAILED.value:
        return f"row {row} has failed; `resequencer delivery retry-failed {found.job}` delivers the failed rows of its job again"
    if found.owner is not None:
        return f"row {row} is called at this moment"
    if found.status in ENDS:
        return f"row {row} has ended: {found.status}"
    return f"row {row} waits behind an earlier one of unit {found.key}"
