"""The marks of an envelope's notifications: late, and released although something was missing."""

from domain.envelope import DataEnvelope
from resequencer.handlers.port import Marks
from resequencer.turn.working_copy import WorkingCopy


def marks_of(copy: WorkingCopy, envelope: DataEnvelope, *, is_forced: bool) -> Marks:
    """Return the marks of an attempt. The strategy says what is late; an envelope that a release forces out is not late.

    Raises:
        PermanentError: The user's own strategy fails.
    """
    is_late = not is_forced and copy.strategy.is_late(copy.state, envelope)
    return Marks(copy.incomplete, is_late, copy.is_ordered and copy.incomplete is not None)
