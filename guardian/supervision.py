"""Supervision as data: the directive for an exception in each place."""

from collections.abc import Mapping
from enum import StrEnum


class Failure(StrEnum):
    """The place where an exception was raised."""

    HANDLER_FOR_A_WHILE = "a handler raised a transient error"
    HANDLER_FOR_EVER = "a handler raised a permanent error, or a transient one too often"
    STRATEGY = "a user's strategy raised"
    TURN = "a resequencer raised in a turn"
    CAREFUL_TURN = "a resequencer raised on no envelope in particular"
    STATE = "what the storage keeps of a unit cannot be used"
    GUARDIAN = "the guardian raised"


class Directive(StrEnum):
    """What happens after a failure, in Akka's words where they fit. The supervisor restarts a worker that ended."""

    RETRY = "the unit waits and the same envelope is tried again"
    DEAD_LETTER = "the envelope becomes a dead letter and the unit goes on"
    TAKE_AGAIN = "the turn is repeated, and only the envelopes on which it fails become dead letters"
    ESCALATE = "the worker ends without committing, and logs the unit"


SUPERVISION: Mapping[Failure, Directive] = {
    Failure.HANDLER_FOR_A_WHILE: Directive.RETRY,
    Failure.HANDLER_FOR_EVER: Directive.DEAD_LETTER,
    Failure.STRATEGY: Directive.DEAD_LETTER,
    Failure.TURN: Directive.TAKE_AGAIN,
    Failure.CAREFUL_TURN: Directive.ESCALATE,
    Failure.STATE: Directive.ESCALATE,
    Failure.GUARDIAN: Directive.ESCALATE,
}
"""An escalation commits nothing, so nothing is lost: records are read again, and waiting envelopes still wait."""
