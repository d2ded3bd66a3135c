"""Fits open rows to the steps of their receiver: an operator may change them while rows are on their way."""

import msgspec
from sqlalchemy import ColumnElement, select

from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.gates import read_gate, write_gate
from notification_service.delivery.ledger.tables import IS_HEAD, KEYS, ROWS
from notification_service.delivery.settings import Receiver, Step

_CHUNK = 500


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
        found = connection.execute(strange.where(ROWS.c.owner.is_(None)).limit(_CHUNK)).all()
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
