"""The gate of a receiver: whether calls may be made, and how many at once. Pure: the ledger keeps the state."""

from enum import StrEnum

import msgspec

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.jobs import Pause, RetryMode
from notification_service.delivery.settings import Receiver, Step

RUNNING = 5
"""How many consecutive rows with a retry or an unexpected answer shut the gate (docs/delivery.md)."""

OWN_SUSPENSIONS = 3
"""After so many suspensions of one unit, with successes of others in between, they count as its failures (docs/delivery.md)."""

_BURST_MS = 1_000

_STEPS = tuple(Step)


class GateState(StrEnum):
    OPEN = "open"
    SHUT = "shut"


class Suspect(msgspec.Struct, frozen=True):
    """A row that got a retry or an unexpected answer at a step: it reopens if the gate shuts for that.

    It had so many `attempts` before.
    """

    row: int
    attempts: int
    step: Step = Step.DELIVER


class Refusals(msgspec.Struct, frozen=True):
    """The suspensions that a unit met at a step since it last succeeded; the gate had so many `successes` there at the last one.

    `between` is how often others had succeeded there since the suspension before.
    """

    step: Step
    successes: int
    between: int = 0

    @property
    def are_its_own(self) -> bool:
        """Whether the unit is to blame, and not the receiver: such an answer counts as a failed attempt."""
        return self.between >= OWN_SUSPENSIONS


class Gate(msgspec.Struct, frozen=True):
    """The state of a receiver's gate. Instants and durations are in ms, of the ledger's clock.

    `limit` is how many calls may be made at once, halved at `halved_at`; `next_call` is the instant from which the rate allows
    the next one. While the gate is shut a probe is due at `probe_at`; `probe` is the row that is the probe at the moment.
    `successes` counts by step the calls that were done or rejected, as the probe or while the gate was open. While a person has
    paused the receiver (`pause`) no call begins, whether the gate is open or shut.
    """

    state: GateState = GateState.OPEN
    reason: str = ""
    since: int = 0
    pause_ms: int = 0
    probe_at: int = 0
    probe: int | None = None
    probes: int = 0
    slept_ms: int = 0
    limit: float = 0.0
    halved_at: int = 0
    next_call: int = 0
    suspects: tuple[Suspect, ...] = ()
    steps: str = ""
    """The steps of the receiver for which the waiting rows are fit; empty: not known."""
    successes: tuple[int, ...] = (0,) * len(Step)
    pause: Pause | None = None

    def permits(self, receiver: Receiver, now: int, running: int, wanted: int) -> int:
        """Return how many calls may begin now; `running` are those under way. In a shut gate it is one probe, when it is due."""
        if self.pause is not None:
            return 0
        if self.state is GateState.SHUT:
            return min(1, wanted) if now >= self.probe_at and self.probe is None else 0
        permitted = min(wanted, max(1, int(self.limit or receiver.concurrency)) - running)
        if receiver.rate is not None:
            # One second's calls may be made at once.
            next_call = self._next_call(receiver.rate, now)
            credit = now - max(next_call, now - 1_000)
            permitted = min(permitted, int((credit * receiver.rate) / 1_000) if receiver.rate >= 1 else int(now >= next_call))
        return max(0, permitted)

    def begun(self, receiver: Receiver, now: int, rows: list[int]) -> "Gate":
        """Return the gate after calls for these rows have begun."""
        gate = self
        if receiver.rate is not None and rows:
            after = max(self._next_call(receiver.rate, now), now - 1_000) if receiver.rate >= 1 else now
            gate = msgspec.structs.replace(gate, next_call=after + round(len(rows) * 1_000 / receiver.rate))
        if self.state is GateState.SHUT and rows:
            gate = msgspec.structs.replace(gate, probe=rows[0], probes=self.probes + 1)
        return gate

    def without_probe(self) -> "Gate":
        """Return the gate after the call for its probe has ended without an outcome: another row can be the probe."""
        return msgspec.structs.replace(self, probe=None)

    def released(self, row: int) -> "Gate":
        """Return the gate after a call whose answer shows nothing of the receiver. If its row was the probe, another can be."""
        return self.without_probe() if self.probe == row else self

    def refused(self, step: Step, before: Refusals | None) -> Refusals:
        """Return what is known of a unit that was answered with a suspension; `before` is what was known before.

        If they are its own, do with its row what `Suspended.alone` says, and give the gate no outcome.
        """
        successes = self.successes[_STEPS.index(step)]
        if before is None or before.step is not step:
            return Refusals(step, successes)
        return Refusals(step, successes, before.between + (before.successes != successes))

    def _next_call(self, rate: float, now: int) -> int:
        """Return `next_call`; 0 if it is farther away than the rate can have put it: the clock was set back."""
        return self.next_call if self.next_call <= now + max(1_000, round(1_000 / rate)) else 0

    def after(self, receiver: Receiver, row: int, attempts: int, outcome: Outcome, now: int, step: Step = Step.DELIVER) -> "Gate":
        """Return the gate after the outcome of a row's call for a step; the row had so many attempts before."""
        if self.state is GateState.SHUT:
            return self._probed(receiver, outcome, now, step) if row == self.probe else self
        if isinstance(outcome, Suspended):
            return self._shut(receiver, outcome.error, now, outcome.after_ms)
        others = tuple(each for each in self.suspects if each.step is not step)
        if _is_suspect(outcome):
            # Of a row that is in trouble again the attempts before the first trouble count.
            before = next((each.attempts for each in self.suspects if each.row == row), attempts)
            running = (*(each for each in self.suspects if each.step is step and each.row != row), Suspect(row, before, step))
            gate = self if len(running) < RUNNING else self._shut(receiver, _error_of(outcome), now, None)
            kept = (*(each for each in others if each.row != row), *running) if gate is self else running
            return msgspec.structs.replace(gate, suspects=kept)
        if isinstance(outcome, Limited):
            return msgspec.structs.replace(self._halved(receiver, now), suspects=others)
        if isinstance(outcome, Done | Rejected):
            grown = min(float(receiver.concurrency), (self.limit or receiver.concurrency) + 1 / max(1.0, self.limit))
            successes = tuple(count + (each is step) for each, count in zip(_STEPS, self.successes, strict=True))
            return msgspec.structs.replace(self, limit=grown, suspects=others, successes=successes)
        return self

    def _halved(self, receiver: Receiver, now: int) -> "Gate":
        """Return the gate with half as many calls at once. The calls of one burst get the same answer, which counts once."""
        if 0 <= now - self.halved_at < _BURST_MS and self.limit:
            return self
        limit = max(1.0, min(self.limit or receiver.concurrency, float(receiver.concurrency)) / 2)
        return msgspec.structs.replace(self, limit=limit, halved_at=now)

    def probed_now(self, now: int) -> "Gate":
        """Return the gate with its next probe due now at the latest."""
        return msgspec.structs.replace(self, probe_at=min(self.probe_at, now))

    def paused(self, pause: Pause | None) -> "Gate":
        """Return the gate of a receiver that is paused, or, with None, gets calls again."""
        return msgspec.structs.replace(self, pause=pause)

    def opened(self, now: int) -> "Gate":
        """Return the gate open."""
        slept = self.slept_ms + (max(0, now - self.since) if self.state is GateState.SHUT else 0)
        return msgspec.structs.replace(
            self, state=GateState.OPEN, reason="", since=now, pause_ms=0, probe=None, suspects=(), slept_ms=slept
        )

    def _probed(self, receiver: Receiver, outcome: Outcome, now: int, step: Step) -> "Gate":
        if _is_awake(outcome) or self._is_of_the_row(outcome):
            return self.opened(now).after(receiver, self.probe or 0, 0, outcome, now, step)
        pause = min(self.pause_ms * 2, receiver.suspension.max_ms)
        asked = outcome.after_ms if isinstance(outcome, Suspended) else None
        return msgspec.structs.replace(
            self, reason=_error_of(outcome), pause_ms=pause, probe_at=now + _longer(receiver, pause, asked), probe=None
        )

    def _is_of_the_row(self, outcome: Outcome) -> bool:
        """Return whether the answer is one that no repetition changes, and another than the one that shut the gate.

        Then the receiver works, and does not understand this row. If more rows get the same, five of them shut the gate again.
        """
        if not isinstance(outcome, Failed) or outcome.mode is not None:
            return False
        return outcome.error.partition(":")[0] != self.reason.partition(":")[0]

    def _shut(self, receiver: Receiver, reason: str, now: int, asked: int | None) -> "Gate":
        pause = receiver.suspension.probe_ms
        return msgspec.structs.replace(
            self,
            state=GateState.SHUT,
            reason=reason,
            since=now,
            pause_ms=pause,
            probe_at=now + _longer(receiver, pause, asked),
            probe=None,
            suspects=(),
        )


def _longer(receiver: Receiver, pause: int, asked: int | None) -> int:
    return max(pause, min(asked or 0, receiver.suspension.max_ms))


def _is_awake(outcome: Outcome) -> bool:
    """Return whether only a receiver that is awake answers so: it does its work, or it does not know a unit (any more)."""
    if isinstance(outcome, Again):
        return outcome.mode is RetryMode.VERIFICATION or outcome.announces
    if isinstance(outcome, Failed):
        return outcome.mode is RetryMode.VERIFICATION or outcome.is_unknown
    return isinstance(outcome, Done | Rejected | Limited)


def _is_suspect(outcome: Outcome) -> bool:
    if isinstance(outcome, Again):
        return outcome.mode is RetryMode.BACK_OFF and not outcome.announces
    return isinstance(outcome, Failed) and outcome.mode is not RetryMode.VERIFICATION


def _error_of(outcome: Outcome) -> str:
    return "" if isinstance(outcome, Done) else outcome.error
