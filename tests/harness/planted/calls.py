"""Faults in how the calls of a handler that waits are begun, answered and ended, planted while a simulation runs."""

from typing import Any

from harness.planted.protocol import Patch

import resequencer.unit_codec
from guardian.actor_gateway import ActorGateway, Decided
from guardian.calls import Calls
from resequencer.call import Answer, Call
from resequencer.handler import Handled
from resequencer.record import Partition
from resequencer.turn.turn import Turn
from resequencer.unit import Unit


def call_begins_before_its_commit(patch: Patch) -> None:
    right = ActorGateway.decide

    def faulty(self: ActorGateway, *arguments: Any) -> Decided:
        decided = right(self, *arguments)
        self.begin_calls()
        return decided

    patch.setattr(ActorGateway, "decide", faulty)


def answer_of_an_earlier_ownership_accepted(patch: Patch) -> None:
    def faulty(self: Calls, partition: Partition) -> None:
        for known in (self._waiting, self._prepared):
            for key in [key for key in known if key.partition == partition]:
                del known[key]

    patch.setattr(Calls, "drop", faulty)


def late_answer_of_a_timed_out_call_accepted(patch: Patch) -> None:
    right = Calls._end

    def faulty(self: Calls, call: Call, outcome: Handled | BaseException, at: float) -> None:
        is_late = self._lingering.get(call.key) is call
        right(self, call, outcome, at)
        if is_late and isinstance(outcome, Handled):
            self._answered[call.key] = Answer(call, outcome)

    patch.setattr(Calls, "_end", faulty)


def called_head_not_stored(patch: Patch) -> None:
    """It is stored as any other envelope that waits."""
    right = resequencer.unit_codec.encode_state

    def faulty(unit: Unit, *arguments: Any) -> bytes:
        if unit.is_called:
            unit = unit.copy()
            unit.amend(retry=None)
        return right(unit, *arguments)

    patch.setattr("resequencer.turn.decide.encode_state", faulty)


def called_envelope_not_stored(patch: Patch) -> None:
    right = Turn._call

    def faulty(self: Turn, *arguments: Any, **named: Any) -> None:
        right(self, *arguments, **named)
        if self.call is not None:
            self.added.pop(self.call.envelope.offset, None)

    patch.setattr(Turn, "_call", faulty)


def next_call_beside_a_lingering_one(patch: Patch) -> None:
    patch.setattr(Calls, "_possible", lambda self: list(self._waiting))


def more_calls_than_the_limit(patch: Patch) -> None:
    patch.setattr(Calls, "_free", property(lambda self: self._limit if self._begins and self._alone is None else 0))


def calls_not_made_again_after_a_takeover(patch: Patch) -> None:
    patch.setattr(Calls, "wait_for", lambda self, key: None)
