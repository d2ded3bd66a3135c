"""The gate of a receiver within one delivery worker, shared by all topics from which the receiver gets records."""

from collections.abc import Callable
from enum import StrEnum
from itertools import count

import msgspec

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.gate import Gate, GateState, Refusals
from notification_service.delivery.core.jobs import Pause
from notification_service.delivery.direct.core.decision import OpenRecord
from notification_service.delivery.settings import Receiver, Step

_MAX_UNITS = 10_000
"""Of so many units is known that they were refused: those of which that was heard last."""

_MAX_GIVEN_BACK = 3
"""So often a failure of one record is held against the receiver, if other records succeed in between."""


_PAUSED_MS = 60_000


class Blame(StrEnum):
    """Whether the record or the receiver is to blame for a failed call."""

    RECORD = "record"
    """The policy says what follows."""
    UNKNOWN = "unknown"
    """The next answers for other records will show it."""
    RECEIVER = "receiver"
    """It sleeps: nothing counts."""


class Doubt(msgspec.Struct, frozen=True):
    """What is done with a failed record when it is known that the record is to blame (`stands`), or the receiver (`falls`)."""

    stands: Callable[[], object]
    falls: Callable[[], object]


class SharedGate:
    """Counts the calls under way, and keeps the gate. Instants are in ms of a clock that never goes back.

    Five records that fail one after the other shut the gate, as those of the ledger do: all five are given back. A success in
    between says that each of those before it is to blame itself.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._rows = count(1)
        self._doubts: dict[int, Doubt] = {}
        self._refusals: dict[str | int, Refusals] = {}
        self._is_shut_by_failures = False
        self.is_known = True
        """Whether it is known if the receiver is paused; until then no call begins."""
        self.gate = Gate()
        self.running = 0
        self.successes = 0
        """How many answers showed that the receiver works."""

    def new_row(self) -> int:
        """Return a number that identifies a record."""
        return next(self._rows)

    def permits(self, now: int, wanted: int) -> int:
        return self.gate.permits(self._receiver, now, self.running, wanted) if self.is_known else 0

    def follow(self, pause: Pause | None) -> None:
        """Let calls begin as a person wants: none while the receiver is paused."""
        self.is_known, self.gate = True, self.gate.paused(pause)

    def probe_now(self, now: int) -> None:
        """Let the next probe of a shut gate be due now."""
        self.gate = self.gate.probed_now(now) if self.is_shut else self.gate

    def begin(self, now: int, row: int) -> None:
        self.running += 1
        self.gate = self.gate.begun(self._receiver, now, [row])

    def judged(self, record: OpenRecord, outcome: Outcome) -> Outcome:
        """Return what an answer means: a suspension that the unit of the record alone meets is its failure."""
        unit = record.key or record.row
        if isinstance(outcome, Done | Rejected):
            self._refusals.pop(unit, None)
        if not isinstance(outcome, Suspended) or outcome.alone is None:
            return outcome
        refusals = self.gate.refused(Step.DELIVER, self._refusals.pop(unit, None))
        self._refusals[unit] = refusals
        if len(self._refusals) > _MAX_UNITS:
            del self._refusals[next(iter(self._refusals))]
        return outcome.alone if refusals.are_its_own else outcome

    def end(
        self,
        now: int,
        record: OpenRecord,
        outcome: Outcome | None,
        *,
        is_own: bool = False,
        counts_alone: bool = False,
        is_last: bool = False,
    ) -> Blame:
        """Note the end of a call; without an outcome it was given up. Return what is to blame for a failure.

        `is_own`: the record's unit alone is to blame. `counts_alone`: failures of such records were judged before and say nothing
        of the receiver. `is_last`: this worker has no others any more whose records could show it. After `UNKNOWN` call `doubt`.
        """
        self.running -= 1
        is_probe = self.is_shut and self.gate.probe == record.row
        if outcome is None or is_own:
            self.gate = self.gate.released(record.row)
            return Blame.RECORD
        if isinstance(outcome, Done | Rejected | Limited):
            self.successes += 1
            self._after(record, outcome, now)
            self._judge(is_receiver=False)
            return Blame.RECORD
        if isinstance(outcome, Suspended):
            self._is_shut_by_failures &= self.is_shut
            self._after(record, outcome, now)
            self._judge(is_receiver=True)
            return Blame.RECEIVER
        if is_probe and counts_alone and is_last:
            # No other record will show it: the gate would stay shut for ever.
            if not self._is_shut_by_failures:
                # The receiver itself has shut it, and may still sleep: with each probe one record is blamed.
                self._after(record, outcome, now)
                return Blame.RECORD
            self.gate = self.gate.opened(now)
        return self._failed(now, record, outcome, is_probe=is_probe, is_fresh=not counts_alone and self._is_fresh(record))

    def doubt(self, row: int, doubt: Doubt) -> None:
        """Keep what is done with a record when it is known what is to blame for its failure."""
        self._doubts[row] = doubt

    def judge_alone(self, row: int) -> None:
        """Blame a record if no other answer has shown for some time what is to blame."""
        if (found := self._doubts.pop(row, None)) is not None:
            found.stands()

    @property
    def is_shut(self) -> bool:
        return self.gate.state is GateState.SHUT

    @property
    def sleeps(self) -> bool:
        """Whether it is paused, has answered that it sleeps, or could not be reached.

        Else records that were not read yet may succeed.
        """
        return not self._may_begin or (self.is_shut and not self._is_shut_by_failures)

    @property
    def _may_begin(self) -> bool:
        return self.is_known and self.gate.pause is None

    def retries_at(self, now: int) -> int:
        """Return when to ask again after no call was permitted: for the probe, or because of the rate."""
        if not self._may_begin:
            return now + _PAUSED_MS  # `follow` ends a pause.
        if self.gate.state is GateState.SHUT:
            return max(self.gate.probe_at, now + (1 if self.gate.probe is None else 2 * self._receiver.timeout_ms))
        return max(self.gate.next_call, now + 20)

    def probe_in_ms(self, now: int) -> int:
        """Return in how many ms the next probe is due; 0 while the gate is open."""
        return max(0, self.gate.probe_at - now) if self.is_shut else 0

    def _failed(self, now: int, record: OpenRecord, outcome: Again | Failed, *, is_probe: bool, is_fresh: bool) -> Blame:
        if is_probe and not self._is_shut_by_failures and isinstance(outcome, Failed) and outcome.mode is None:
            # A receiver that sleeps answers otherwise.
            self.gate = self.gate.opened(now)
        was_shut = self.is_shut
        if was_shut or is_fresh:
            self._after(record, outcome, now)
        if self.is_shut and not was_shut:
            self._is_shut_by_failures = True
            self._judge(is_receiver=True)
        if self.is_shut:
            return Blame.RECEIVER
        return Blame.UNKNOWN if is_fresh else Blame.RECORD

    def _after(self, record: OpenRecord, outcome: Outcome, now: int) -> None:
        self.gate = self.gate.after(self._receiver, record.row, record.attempts, outcome, now)
        if self.is_shut:
            self.gate = msgspec.structs.replace(self.gate, suspects=())

    def _is_fresh(self, record: OpenRecord) -> bool:
        """Return whether others may fail as the record did: none has succeeded since its last failure."""
        failed_at, is_spared = record.failed_at, 0 < record.given_back < _MAX_GIVEN_BACK
        return failed_at is None or failed_at == self.successes or is_spared

    def _judge(self, *, is_receiver: bool) -> None:
        doubts, self._doubts = self._doubts, {}
        for each in doubts.values():
            (each.falls if is_receiver else each.stands)()
