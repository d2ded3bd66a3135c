"""Supervision as data: what an exception in each place leads to."""

from collections.abc import Mapping
from enum import StrEnum


class Failure(StrEnum):
    """Where something was raised."""

    HANDLER_FOR_A_WHILE = "a handler raised a transient error"
    HANDLER_FOR_EVER = "a handler raised a permanent error, or a transient one too often"
    STRATEGY = "a user's strategy raised"
    TURN = "a resequencer raised in a turn"
    CAREFUL_TURN = "a resequencer raised on no envelope in particular"
    STATE = "what the storage keeps of a unit cannot be used"
    GUARDIAN = "the guardian raised"


class Directive(StrEnum):
    """What happens then. Akka's words where they fit; a worker that ends is started again by whoever runs it."""

    RETRY = "the unit waits and the same envelope is tried again"
    DEAD_LETTER = "the envelope becomes a dead letter and the unit goes on"
    TAKE_AGAIN = "the turn is taken again, and each envelope that it fails on becomes a dead letter, alone"
    ESCALATE = "the worker ends without committing, and says which unit it was"


SUPERVISION: Mapping[Failure, Directive] = {
    Failure.HANDLER_FOR_A_WHILE: Directive.RETRY,
    Failure.HANDLER_FOR_EVER: Directive.DEAD_LETTER,
    Failure.STRATEGY: Directive.DEAD_LETTER,
    Failure.TURN: Directive.TAKE_AGAIN,
    Failure.CAREFUL_TURN: Directive.ESCALATE,
    Failure.STATE: Directive.ESCALATE,
    Failure.GUARDIAN: Directive.ESCALATE,
}
"""An escalation commits nothing, so nothing is lost: what was read is read again, what waits still waits."""
