"""What an answer of a receiver means for a row: one pure function, which the table of docs/delivery.md describes."""

from enum import StrEnum

import msgspec

from notification_service.delivery.core.jobs import RetryMode, Tries
from notification_service.delivery.settings import Receiver, Step
from resequencer.printable import counted

_SHOWN = 500


class Trouble(StrEnum):
    """Why there is no answer."""

    UNREACHABLE = "unreachable"
    """No connection: refused, timed out, TLS, DNS. The receiver cannot have seen the call."""
    BROKEN = "broken"
    """The connection broke, or the time was over, after the call was sent: the receiver may have taken it."""
    FORBIDDEN = "forbidden"
    """The receiver's address is in a network that the operator forbids."""


class Answer(msgspec.Struct, frozen=True):
    """`body` is the beginning of the body; `retry_after_ms` is None without a valid header Retry-After."""

    status: int
    body: str = ""
    retry_after_ms: int | None = None

    def __str__(self) -> str:
        text = " ".join(self.body.split())[:_SHOWN]
        return f"HTTP {self.status}" + (f": {text}" if text else "")


class NoAnswer(msgspec.Struct, frozen=True):
    trouble: Trouble
    error: str

    def __str__(self) -> str:
        return self.error


class Done(msgspec.Struct, frozen=True):
    """The step is done."""


class Limited(msgspec.Struct, frozen=True):
    """Too many calls: again after a while, with fewer at once. No attempt is counted."""

    error: str
    after_ms: int


class Again(msgspec.Struct, frozen=True):
    """The call is made again after `after_ms`; `announces`: the unit is announced again before."""

    mode: RetryMode
    after_ms: int
    error: str
    announces: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """The receiver does not want it. After an announcement this holds for all open rows of the unit."""

    error: str


class Failed(msgspec.Struct, frozen=True):
    """It is not tried again. `mode` says which attempts were all made; None: the answer was not expected.

    `is_unknown`: the last answer was that the receiver does not know the unit (any more).
    """

    error: str
    mode: RetryMode | None = None
    is_unknown: bool = False


class Suspended(msgspec.Struct, frozen=True):
    """The receiver sleeps or cannot be reached: its gate shuts, and no attempt is counted. `after_ms` is what it asked for.

    `alone` is what the answer means for a unit that alone gets it (`Gate.judged`); None: there was no answer.
    """

    error: str
    after_ms: int | None = None
    alone: Again | Failed | None = None


Outcome = Done | Suspended | Limited | Again | Rejected | Failed

_TRANSIENT = frozenset({408, 500, 502, 503, 504})
_LOCKED_OUT = frozenset({401, 403})
_ALREADY_THERE = 409
_NOT_FOUND = 404
_TOO_MANY = 429
_UNAVAILABLE = 503


def outcome_of(receiver: Receiver, step: Step, reply: Answer | NoAnswer, tries: Tries, chance: float) -> Outcome:
    """Return what the reply to a call means. `chance` is a random number from 0 to 1, for the jitter."""
    if isinstance(reply, NoAnswer):
        if reply.trouble is Trouble.BROKEN:
            return _again_or_failed(receiver, reply, tries.attempts, chance)
        return Suspended(str(reply))
    # What an operator has configured comes before what a status means in general.
    return _configured(receiver, reply, tries, chance) or _general(receiver, step, reply, tries, chance)


def _configured(receiver: Receiver, reply: Answer, tries: Tries, chance: float) -> Outcome | None:
    status, text = reply.status, reply.body
    if receiver.suspension.holds(status, text):
        return _suspended(receiver, reply, tries, chance)
    if receiver.limit.holds(status, text):
        return _limited(receiver, reply, tries, chance)
    if receiver.reject.holds(status, text):
        return Rejected(str(reply))
    return Done() if receiver.done.holds(status, text) else None


def _general(receiver: Receiver, step: Step, reply: Answer, tries: Tries, chance: float) -> Outcome:
    status = reply.status
    if 200 <= status < 300 or status == _ALREADY_THERE:
        return Done()
    if status in _LOCKED_OUT or (status == _UNAVAILABLE and reply.retry_after_ms is not None):
        return _suspended(receiver, reply, tries, chance)
    if status == _TOO_MANY:
        return _limited(receiver, reply, tries, chance)
    if status in _TRANSIENT:
        return _again_or_failed(receiver, reply, tries.attempts, chance)
    return _not_found(receiver, step, reply, tries, chance) if status == _NOT_FOUND else Failed(str(reply))


def _not_found(receiver: Receiver, step: Step, reply: Answer, tries: Tries, chance: float) -> Outcome:
    if step is Step.VERIFY:
        questions = tries.questions + 1
        if questions >= receiver.verify.attempts:
            return Failed(f"{reply} (not found after {questions} questions)", RetryMode.VERIFICATION)
        # It may have forgotten the unit since. Half-way, for then the other half remains to find it.
        announces = questions == receiver.verify.attempts // 2
        return Again(RetryMode.VERIFICATION, receiver.verify.delay_ms, str(reply), announces)
    if step is Step.DELIVER and Step.ANNOUNCE in receiver.steps.all:
        return _again_or_failed(receiver, reply, tries.attempts, chance, announces=True)
    return Failed(str(reply))


def _again_or_failed(
    receiver: Receiver, reply: Answer | NoAnswer, attempts: int, chance: float, *, announces: bool = False
) -> Again | Failed:
    """Return what follows a failure that counts, after so many before it."""
    if receiver.retry.is_last(attempts + 1):
        return Failed(f"{reply} (after {counted(attempts + 1, 'attempt')})", RetryMode.BACK_OFF, is_unknown=announces)
    return Again(RetryMode.BACK_OFF, receiver.retry.back_off_ms(attempts + 1, chance), str(reply), announces)


def _suspended(receiver: Receiver, reply: Answer, tries: Tries, chance: float) -> Suspended:
    return Suspended(str(reply), reply.retry_after_ms, _again_or_failed(receiver, reply, tries.attempts, chance))


def _limited(receiver: Receiver, reply: Answer, tries: Tries, chance: float) -> Limited:
    waits = receiver.retry.back_off_ms(tries.limits + 1, chance)
    return Limited(str(reply), max(waits, min(reply.retry_after_ms or 0, receiver.suspension.max_ms)))
