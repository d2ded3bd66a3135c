"""Decides which envelope, if any, caused the exit of a worker, and describes it. Pure."""

import signal
from enum import StrEnum

from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.suspects import EXITS_OF_ONE, REMEDY, Suspect
from resequencer.dead_letter import DeadLetterReason

_OF_ITS_OWN = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)
"""Signals that a process causes itself. SIGKILL and SIGTERM come from outside: from a person, or from a kernel without memory."""

_REASON = DeadLetterReason.ENDED_ITS_WORKER.value
_TOLD_TWICE = frozenset({128 + signal.SIGTERM, 128 + signal.SIGINT})
"""The exit codes of a worker that got a second signal."""

_TOLD_TO_END = _TOLD_TWICE | {0, -signal.SIGTERM, -signal.SIGINT}
"""A worker drains and ends with 0 only when it is told to; a signal ends it if it does not listen to signals yet."""


class ExitCause(StrEnum):
    """What ended a worker, as reports count it. An exit with an envelope in flight is the envelope's, if it may be its doing."""

    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    HUNG = "hung"
    RECORD = "record"
    TOLD = "told"


def cause_of(code: int, *, is_hung: bool, has_poison: bool) -> ExitCause:
    """Return the cause of an exit with this code (negative for a signal)."""
    if is_hung:
        return ExitCause.HUNG
    if has_poison:
        return ExitCause.RECORD
    if was_told(code):
        return ExitCause.TOLD
    return ExitCause.SIGNAL if code < 0 else ExitCause.EXIT_CODE


def was_told(code: int) -> bool:
    """Return whether a worker that ends with this code was told to end, once or twice: by the console or by a person."""
    return code in _TOLD_TO_END


def is_own_doing(code: int) -> bool:
    """Return whether a worker caused its own end: with an exit code, or by a signal (negative) that its own code raises."""
    return -code in _OF_ITS_OWN if code < 0 else code not in _TOLD_TWICE


def blame(held: InFlightEnvelope, suspect: Suspect | None) -> str:
    """Return the text that follows the description of the exit; `suspect` is None if the exit could not be counted."""
    told = f"while {held}"
    if suspect is None:
        return told
    if not suspect.is_condemned:
        return f"{told} (exit {suspect.exits} of {EXITS_OF_ONE} on this record; after the last it becomes a dead letter)"
    if suspect.exits == EXITS_OF_ONE:
        how = f"exit {EXITS_OF_ONE} of {EXITS_OF_ONE} on this record"
        return f"{told} ({how}): the record becomes a dead letter {_REASON}; {REMEDY}"
    return f"{told} (exit {suspect.exits} on this record, a dead letter since exit {EXITS_OF_ONE}: report this as a bug)"
