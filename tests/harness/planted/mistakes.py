"""Faults in how a failed turn is repeated, planted in the code while a simulation runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from guardian.guardian_actor import Escalated, Failure, Guardian
from notification_service.payments.envelope import DataEnvelope
from resequencer.actor import Resequencer
from resequencer.batch import TakeTurn, TurnsTaken
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import our_mistake
from resequencer.turn.decide import take_turn
from resequencer.turn.poison import take_careful_turn
from resequencer.turn.turn import Turn
from resequencer.unit import Entry, Unit, Wake

Patch = pytest.MonkeyPatch
_CAREFUL = "resequencer.actor.take_careful_turn"


def whole_poll_dead_lettered(patch: Patch) -> None:
    def faulty(unit: Unit, envelopes: tuple[DataEnvelope, ...], wakes: Iterable[Wake], *rest: Any) -> Turn:
        if not envelopes:
            return take_careful_turn(unit, envelopes, wakes, *rest)
        return _with_letters(take_turn(unit, (), (), *rest), envelopes, rest[0])

    patch.setattr(_CAREFUL, faulty)


def innocent_one_dead_lettered(patch: Patch) -> None:
    """The envelope that released the poison becomes a dead letter: the last arrivals are set aside until nothing is raised."""

    def faulty(unit: Unit, envelopes: tuple[DataEnvelope, ...], wakes: Iterable[Wake], *rest: Any) -> Turn:
        for count in range(len(envelopes), 0, -1):
            try:
                return _with_letters(take_turn(unit, envelopes[:count], wakes, *rest), envelopes[count:], rest[0])
            except ArithmeticError:
                continue
        return _with_letters(take_careful_turn(unit, (), wakes, *rest), envelopes, rest[0])

    patch.setattr(_CAREFUL, faulty)


def poison_left_in_the_stash(patch: Patch) -> None:
    right = Turn.note_unstashed

    def faulty(self: Turn, entry: Entry) -> None:
        last = self.output[-1] if self.output else None
        if not isinstance(last, DeadLetter) or our_mistake(ArithmeticError("a mistake of ours")) not in last.error:
            right(self, entry)

    patch.setattr(Turn, "note_unstashed", faulty)


def successors_wait_for_the_poison(patch: Patch) -> None:
    patch.setattr("resequencer.turn.poison.guarded", lambda rules: rules)


def deadline_that_fails_ends_the_worker(patch: Patch) -> None:
    right = Guardian.receiveMsg_PoisonMessage

    def faulty(self: Guardian, message: Any, sender: Any) -> None:
        turn = message.poisonMessage
        if isinstance(turn, TakeTurn) and not turn.envelopes:
            self._answer(Escalated(Failure.CAREFUL_TURN, turn.key, "its deadline or its retry fails"))
        else:
            right(self, message, sender)

    patch.setattr(Guardian, "receiveMsg_PoisonMessage", faulty)


def answered_while_a_turn_is_out(patch: Patch) -> None:
    """A turn that raises is counted off, so the cycle commits past its records before it is repeated."""
    right = Resequencer._take_turn

    def faulty(self: Resequencer, unit: Unit, message: TakeTurn, sender: Any) -> None:
        try:
            right(self, unit, message, sender)
        except ArithmeticError:
            if message.batch.count_off():
                self.send(sender, TurnsTaken(message.batch))
            raise

    patch.setattr(Resequencer, "_take_turn", faulty)


def turn_that_raised_not_undone(patch: Patch) -> None:
    """A turn that raises leaves the unit half changed, and is repeated on that."""
    patch.setattr(Unit, "restore", lambda self, saved: None)


def _with_letters(turn: Turn, envelopes: Iterable[DataEnvelope], now: int) -> Turn:
    turn.output += [DeadLetter(each.record, DeadLetterReason.HANDLER_FAILED, "it came with a poison", now) for each in envelopes]
    return turn
