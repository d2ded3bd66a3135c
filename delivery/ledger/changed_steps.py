"""Fits open rows to the steps of their receiver: an operator may change them while rows are on their way."""

from sqlalchemy import select

from delivery.ledger.database import Database
from delivery.ledger.finishing import CANCELLING, Finishing
from delivery.ledger.tables import IS_HEAD, ROWS
from delivery.settings import Receiver

_CHUNK = 500


def fit_steps(database: Database, receiver: Receiver, name: str) -> int:
    """Give heads that wait for a step that the receiver has no more the step that is next for their unit; return how many.

    The other rows get their step when they become heads. A row that is being called is fitted after its call.
    """
    known = [*(each.value for each in receiver.steps.all), CANCELLING]
    strange = select(ROWS.c.id, ROWS.c.key).where(ROWS.c.receiver == name, IS_HEAD, ROWS.c.step.not_in(known))
    with database.read() as connection:
        if connection.execute(strange.limit(1)).first() is None:
            return 0
    with database.write() as connection:
        now = database.now(connection)
        finishing = Finishing(connection, receiver, name, now)
        is_running = ROWS.c.owner.is_not(None) & (ROWS.c.due_at > now)
        found = connection.execute(strange.where(~is_running).order_by(ROWS.c.id).limit(_CHUNK)).all()
        finishing.lock({key for _, key in found})
        finishing.load([row for row, _ in found])
        for row in finishing.rows.values():
            finishing.fit(row)
        finishing.write()
    return len(found)
