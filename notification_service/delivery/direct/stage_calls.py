"""Makes the calls of one stage, and does what follows their outcomes."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from guardian.ports import OutputRecord
from notification_service.delivery.caller import Caller
from notification_service.delivery.core.answers import Again, Answer, Failed, Limited, NoAnswer, Outcome, outcome_of
from notification_service.delivery.core.jobs import Tries
from notification_service.delivery.direct.core.decision import (
    Dead,
    Decision,
    Ended,
    Moves,
    OpenRecord,
    Stage,
    Waits,
    dead_letter,
    decide,
    moved,
)
from notification_service.delivery.direct.core.partition import Pressure
from notification_service.delivery.direct.core.shared_gate import Blame, Doubt, SharedGate
from notification_service.delivery.direct.owned import Owned
from notification_service.delivery.settings import Step
from resequencer.clock import Clock
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Partition


class Calling(Protocol):
    """A stage that makes calls. Instants are in ms of the event loop's clock."""

    def begin_one(self, now: int) -> bool:
        """Begin a call; return False if no record is due, or none may be called."""
        ...

    def find_next_due(self) -> int | None:
        """Return when the next record is due; None if none waits, or none may be called."""
        ...

    @property
    def reads_source(self) -> bool:
        """Whether records may come that were not judged before."""
        ...

    def held_bytes(self) -> int:
        """Return about how much memory the open records take."""
        ...


class CallSlots:
    """A stage with a backlog cannot keep the others from their calls: each free slot goes to the stage whose turn it is."""

    def __init__(self, gate: SharedGate) -> None:
        self.gate = gate
        self._stages: deque[Calling] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, stage: Calling) -> None:
        self._stages.append(stage)

    def leave(self, stage: Calling) -> None:
        """Begin no more calls of the stage. Without a stage nothing is awaited any more."""
        if stage in self._stages:
            self._stages.remove(stage)
        if not self._stages:
            self._cancel()

    @property
    def reads_source(self) -> bool:
        """Whether this worker has partitions of the topics themselves, and not only of retry topics."""
        return any(each.reads_source for each in self._stages)

    def held_bytes(self) -> int:
        """Return about how much memory the open records of all stages take."""
        return sum(each.held_bytes() for each in self._stages)

    def pressure(self) -> Pressure:
        """Return what decides how far is read."""
        return Pressure(self.held_bytes(), self.now(), self.gate.sleeps)

    def wake(self) -> None:
        """Begin as many calls as the gate permits, and see to it that this is tried again when the next record is due."""
        self._cancel()
        now, idle = self.now(), 0
        while idle < len(self._stages) and self.gate.permits(now, 1) > 0:
            stage = self._stages[0]
            self._stages.rotate(-1)
            idle = 0 if stage.begin_one(now) else idle + 1
        self._wait(now)

    def now(self) -> int:
        return round(asyncio.get_running_loop().time() * 1_000)

    def _wait(self, now: int) -> None:
        nexts = [each for stage in self._stages if (each := stage.find_next_due()) is not None]
        if nexts:
            at = min(nexts) if min(nexts) > now else self.gate.retries_at(now)
            self._timer = asyncio.get_running_loop().call_later((at - now) / 1_000, self.wake)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_LOG = logging.getLogger("resequencer.delivery")
_TO_SKIP_MS = 60_000
_DOUBT_SECONDS = 1.0
"""So long a record that would end is kept, until the answers for others show whether it or the receiver is to blame."""


class StageCalls:
    """Used from the event loop alone. `owned` are the partitions of this worker, as they change.

    `may_call` is asked before each call.
    """

    def __init__(
        self,
        stage: Stage,
        caller: Caller,
        slots: CallSlots,
        clock: Clock,
        owned: dict[Partition, Owned],
        may_call: Callable[[], bool],
    ) -> None:
        self._stage, self._caller, self._slots, self._gate, self._clock = stage, caller, slots, slots.gate, clock
        self._owned, self._may_call = owned, may_call
        self.failure: BaseException | None = None
        """A defect of ours that ended a call."""

    def begin_one(self, now: int) -> bool:
        if not self._may_call():
            return False
        for name, owned in self._owned.items():
            if due := owned.state.take_due(now, 1):
                self._owned[name] = self._owned.pop(name)  # The next call is of another partition, if one has any.
                self._gate.begin(now, due[0].row)
                call = asyncio.get_running_loop().create_task(self._deliver(owned, due[0]))
                owned.calls.add(call)
                call.add_done_callback(partial(self._forget, owned))
                return True
        return False

    def find_next_due(self) -> int | None:
        if not self._may_call():
            return None
        nexts = [each for owned in self._owned.values() if (each := owned.state.find_next_due()) is not None]
        return min(nexts, default=None)

    def held_bytes(self) -> int:
        return sum(each.state.held_bytes for each in self._owned.values())

    @property
    def reads_source(self) -> bool:
        """Whether records may come here that were not judged before."""
        return self._stage.is_source and bool(self._owned)

    def dead_letter(self, record: OpenRecord, reason: DeadLetterReason, error: str) -> OutputRecord:
        _LOG.warning("%s becomes a dead letter (%s) of %s", record.way.origin, reason, self._stage.dead_letters)
        return dead_letter(record, reason, error, self._clock.now())

    def _forget(self, owned: Owned, call: "asyncio.Task[None]") -> None:
        owned.calls.discard(call)
        if not call.cancelled() and call.exception() is not None:
            self.failure = call.exception()

    async def _deliver(self, owned: Owned, record: OpenRecord) -> None:
        answered: Outcome | None = None
        outcome: Outcome | None = None
        try:
            answered = self._outcome(record, await self._caller.call(record))
            outcome = self._gate.judged(record, answered)
        finally:
            # What an operator has ordered to skip is not held against the receiver.
            counts_alone = owned.state.skips_all or (outcome is not None and self._was_judged(outcome))
            is_last = not self._slots.reads_source
            blame = self._gate.end(
                self._slots.now(),
                record,
                outcome,
                is_own=outcome is not answered,
                counts_alone=counts_alone,
                is_last=is_last,
            )
            if outcome is not None and owned.is_ours:
                self._follow(owned, record, outcome, blame)
            self._slots.wake()

    def _outcome(self, record: OpenRecord, reply: Answer | NoAnswer) -> Outcome:
        chance = random.random()  # noqa: S311 - Jitter is no secret.
        tries = Tries(record.attempts, limits=record.limits)
        return outcome_of(self._stage.receiver, Step.DELIVER, reply, tries, chance)

    def _was_judged(self, outcome: Outcome) -> bool:
        """Return whether records of this stage fail so because of themselves: they came here because others had succeeded.

        An answer that nothing names is new for a record of a retry topic, but not for one that was a dead letter.
        """
        if self._stage.is_source or not isinstance(outcome, Again | Failed):
            return False
        return outcome.mode is not None or not self._stage.delay_ms

    def _follow(self, owned: Owned, record: OpenRecord, outcome: Outcome, blame: Blame) -> None:
        decision = decide(outcome, skips=owned.state.skips_all, is_asleep=blame is Blame.RECEIVER)
        before = record.attempts
        if isinstance(outcome, Again | Failed):
            record.failed_at = self._gate.successes
        if blame is not Blame.RECEIVER:
            record.limits = record.limits + 1 if isinstance(outcome, Limited) else 0
        if blame is not Blame.UNKNOWN or isinstance(decision, Ended | Waits):
            self._settle(owned, record, decision)
            if blame is Blame.UNKNOWN:
                self._gate.doubt(record.row, Doubt(lambda: None, partial(_give_back, record, before)))
        else:
            stands = partial(self._settle_if_ours, owned, record, decision)
            self._gate.doubt(record.row, Doubt(stands, partial(self._spare, owned, record, decision.error)))
            asyncio.get_running_loop().call_later(_DOUBT_SECONDS, self._gate.judge_alone, record.row)

    def _spare(self, owned: Owned, record: OpenRecord, error: str) -> None:
        """Keep a record open that would have ended."""
        _give_back(record, record.attempts)
        self._settle_if_ours(owned, record, Waits(0, error, counts=False))

    def _settle_if_ours(self, owned: Owned, record: OpenRecord, decision: Decision) -> None:
        if owned.is_ours:
            self._settle(owned, record, decision)

    def _settle(self, owned: Owned, record: OpenRecord, decision: Decision) -> None:
        if isinstance(decision, Ended):
            owned.state.end(record)
            return
        record.error = decision.error
        if record.blocked_since is None:
            record.blocked_since = self._clock.now()
        if isinstance(decision, Waits):
            record.attempts += decision.counts
            owned.state.again(record, self._slots.now() + self._wait_ms(record, decision))
            return
        record.attempts += 1
        if isinstance(decision, Moves) and self._stage.next_topic is not None:
            owned.state.end(record, moved(record, self._stage.next_delay_ms, decision.error, self._clock.now()))
            return
        reason = decision.reason if isinstance(decision, Dead) else DeadLetterReason.ATTEMPTS_EXHAUSTED
        owned.state.end(record, self.dead_letter(record, reason, decision.error))

    def _wait_ms(self, record: OpenRecord, decision: Waits) -> int:
        if record.is_to_skip:  # What an operator wants back is not called again before the order is executed.
            return _TO_SKIP_MS
        if decision.counts:
            return decision.after_ms
        # The next probe is another record, if one is due.
        probe_in_ms = self._gate.probe_in_ms(self._slots.now())
        return max(decision.after_ms, probe_in_ms + 1 if probe_in_ms else 0)


def _give_back(record: OpenRecord, attempts: int) -> None:
    record.attempts = attempts
    record.given_back += 1
