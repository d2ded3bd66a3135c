"""What follows the outcome of a call for a record of a topic. Pure."""

from typing import NamedTuple

import msgspec

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.rows import RetryMode
from resequencer.dead_letter import DeadLetterReason


class Ended(msgspec.Struct, frozen=True):
    """The receiver has it."""


class Waits(msgspec.Struct, frozen=True):
    """It is tried again after `after_ms` at the earliest; `counts`: the attempt counts."""

    after_ms: int
    error: str
    counts: bool


class Moves(msgspec.Struct, frozen=True):
    """All attempts of this stage were made: it goes to the next topic, or is a dead letter."""

    error: str


class Dead(NamedTuple):
    reason: DeadLetterReason
    error: str


Decision = Ended | Waits | Moves | Dead


def decide(outcome: Outcome, *, skips: bool, is_asleep: bool) -> Decision:
    """Return what follows. With `skips` an operator wants no further attempt after one that counts.

    `is_asleep`: the call was the probe of a receiver that sleeps, and still does. Then nothing counts.
    """
    if isinstance(outcome, Done):
        return Ended()
    if is_asleep or isinstance(outcome, Suspended | Limited):
        return Waits(outcome.after_ms if isinstance(outcome, Limited) else 0, outcome.error, counts=False)
    if isinstance(outcome, Rejected):
        return Dead(DeadLetterReason.REJECTED, outcome.error)
    if isinstance(outcome, Again):
        return Dead(DeadLetterReason.SKIPPED, outcome.error) if skips else Waits(outcome.after_ms, outcome.error, counts=True)
    return _failed(outcome, skips=skips)


def _failed(outcome: Failed, *, skips: bool) -> Decision:
    if outcome.mode is not RetryMode.BACK_OFF:
        return Dead(DeadLetterReason.UNEXPECTED_ANSWER, outcome.error)
    return Dead(DeadLetterReason.SKIPPED, outcome.error) if skips else Moves(outcome.error)
