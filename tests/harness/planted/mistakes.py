"""Faults in how a failed turn is repeated, planted in the code while a simulation runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.envelope import DataEnvelope
from domain.errors import our_mistake
from guardian.guardian_actor import Guardian
from guardian.supervision import Failure
from resequencer.messages import TakeTurn
from resequencer.stash import Stashed
from resequencer.turn.effects import Effects
from resequencer.turn.poison import decide_without_poison
from resequencer.turn.turn import Turned, decide
from resequencer.unit import Unit, Wake

Patch = pytest.MonkeyPatch
_CAREFUL = "resequencer.actor.decide_without_poison"


def whole_poll_dead_lettered(patch: Patch) -> None:
    def faulty(unit: Unit, envelopes: tuple[DataEnvelope, ...], wakes: Iterable[Wake], *rest: Any) -> Turned:
        if not envelopes:
            return decide_without_poison(unit, envelopes, wakes, *rest)
        return _with_letters(decide(unit, (), (), *rest), envelopes, rest[0])

    patch.setattr(_CAREFUL, faulty)


def innocent_one_dead_lettered(patch: Patch) -> None:
    """The envelope that released the poison becomes a dead letter: the last arrivals are set aside until nothing is raised."""

    def faulty(unit: Unit, envelopes: tuple[DataEnvelope, ...], wakes: Iterable[Wake], *rest: Any) -> Turned:
        for count in range(len(envelopes), 0, -1):
            try:
                return _with_letters(decide(unit, envelopes[:count], wakes, *rest), envelopes[count:], rest[0])
            except ArithmeticError:
                continue
        return _with_letters(decide_without_poison(unit, (), wakes, *rest), envelopes, rest[0])

    patch.setattr(_CAREFUL, faulty)


def poison_left_in_the_stash(patch: Patch) -> None:
    right = Effects.dead_letter_entry

    def faulty(self: Effects, entry: Stashed, reason: DeadLetterReason, error: str) -> None:
        if our_mistake(ArithmeticError("a mistake of ours")) not in error:
            right(self, entry, reason, error)
        else:
            self.dead_letter(entry.envelope.record, reason, error)

    patch.setattr(Effects, "dead_letter_entry", faulty)


def successors_wait_for_the_poison(patch: Patch) -> None:
    patch.setattr("resequencer.turn.poison.guarded", lambda rules: rules)


def deadline_that_fails_ends_the_worker(patch: Patch) -> None:
    right = Guardian.receiveMsg_PoisonMessage

    def faulty(self: Guardian, message: Any, sender: Any) -> None:
        turn = message.poisonMessage
        if isinstance(turn, TakeTurn) and not turn.envelopes:
            self._supervise(Failure.CAREFUL_TURN, turn.key, "its deadline or its retry fails")
        else:
            right(self, message, sender)

    patch.setattr(Guardian, "receiveMsg_PoisonMessage", faulty)


def _with_letters(turned: Turned, envelopes: Iterable[DataEnvelope], now: int) -> Turned:
    letters = [DeadLetter(each.record, DeadLetterReason.HANDLER_FAILED, "it came with a poison", now) for each in envelopes]
    decision = turned.decision
    return Turned(turned.unit, replace(decision, output=(*decision.output, *letters)))
