"""The gates of receivers in the ledger."""

import msgspec
from sqlalchemy import Connection, select, update
from sqlalchemy.exc import IntegrityError

from notification_service.delivery.core.gate import Gate
from notification_service.delivery.ledger.tables import GATES

_decoder = msgspec.json.Decoder(Gate)


def read_gate(connection: Connection, receiver: str) -> Gate:
    found = connection.scalar(select(GATES.c.state).where(GATES.c.receiver == receiver))
    return Gate() if found is None else _decoder.decode(found)


def lock_gate(connection: Connection, receiver: str) -> Gate:
    """Return the gate, which no other transaction changes until this one ends."""
    asked = select(GATES.c.state).where(GATES.c.receiver == receiver).with_for_update()
    found = connection.scalar(asked)
    if found is None:
        try:
            with connection.begin_nested():
                connection.execute(GATES.insert().values(receiver=receiver, state=_encoded(Gate())))
        except IntegrityError:
            pass  # Another transaction has made it.
        found = connection.scalar(asked)
    return _decoder.decode(found or b"{}")


def write_gate(connection: Connection, receiver: str, gate: Gate) -> None:
    connection.execute(update(GATES).where(GATES.c.receiver == receiver).values(state=_encoded(gate)))


def _encoded(gate: Gate) -> str:
    return msgspec.json.encode(gate).decode()
