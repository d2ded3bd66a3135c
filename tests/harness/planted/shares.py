"""Faults in the handling of a turn that has used up its output budget, planted in the code while a simulation runs."""

from typing import Any

from harness.planted.protocol import Patch

from notification_service.payments.envelope import DataEnvelope
from resequencer.batch import WITHOUT_END, Batch
from resequencer.errors import PermanentError
from resequencer.turn.decide import receive
from resequencer.turn.turn import Turn
from resequencer.unit import Remainder


def share_ignored(patch: Patch) -> None:
    patch.setattr(Batch, "for_others", property(lambda _: WITHOUT_END, lambda *_: None))
    patch.setattr(Batch, "for_remainders", property(lambda _: WITHOUT_END))


def what_was_cut_off_loses_its_marks(patch: Patch) -> None:
    def faulty(self: Turn, lane: str | None = None) -> None:
        self.unit.amend(remainder=Remainder(lane))

    patch.setattr(Turn, "cut_off", faulty)


def what_was_cut_off_is_not_stored(patch: Patch) -> None:
    patch.setattr("resequencer.unit_codec._remainder", lambda _: None)


def later_arrivals_overtake_the_rest(patch: Patch) -> None:
    """Later arrivals join the stash while it is being released."""

    def faulty(turn: Turn, envelope: DataEnvelope) -> None:
        unit: Any = turn.unit
        if unit.remainder is None or unit.find_digest(envelope.id_hash) is not None:
            receive(turn, envelope)
            return
        turn.arrived += 1
        turn.is_changed = True
        try:
            unit.state = turn.strategy.observe(unit.state, envelope)
            entry = turn.entry(envelope)
        except PermanentError as error:
            turn.dead_letter(envelope.record, error.reason, str(error))
            return
        unit.add(entry)
        turn.note_stashed(entry)

    patch.setattr("resequencer.turn.decide.receive", faulty)


def what_was_cut_off_waits_for_the_next_arrival(patch: Patch) -> None:
    """The rest of a cut turn is not woken."""
    patch.setattr("guardian.timers.UnfinishedTurns.first", lambda *_: [])
