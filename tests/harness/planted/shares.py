"""Faults in the handling of a turn that has used up its share, planted in the code while a simulation runs."""

from harness.planted.protocol import Patch

from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.stash import Stashed
from resequencer.turn.duplicates import find_known
from resequencer.turn.turn import receive
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Remainder


def share_ignored(patch: Patch) -> None:
    patch.setattr(WorkingCopy, "is_spent", property(lambda _: False))


def what_was_cut_off_loses_its_marks(patch: Patch) -> None:
    def faulty(self: WorkingCopy, lane: str | None = None) -> None:
        self.remainder = Remainder(lane)

    patch.setattr(WorkingCopy, "cut_off", faulty)


def what_was_cut_off_is_not_stored(patch: Patch) -> None:
    patch.setattr("resequencer.unit_codec._remainder", lambda _: None)


def later_arrivals_overtake_the_rest(patch: Patch) -> None:
    """Later arrivals join the stash while it is being released."""

    def faulty(copy: WorkingCopy, envelope: DataEnvelope) -> None:
        if copy.remainder is None or find_known(copy, envelope) is not None:
            receive(copy, envelope)
            return
        copy.effects.arrive(envelope.offset)
        copy.is_changed = True
        try:
            copy.state = copy.strategy.observe(copy.state, envelope)
            entry = Stashed(envelope, copy.strategy.rank(envelope), copy.now)
        except PermanentError as error:
            copy.effects.dead_letter(envelope.record, error.reason, str(error))
            return
        copy.stash = copy.stash.add(entry)
        copy.effects.stash(entry)

    patch.setattr("resequencer.turn.turn.receive", faulty)


def what_was_cut_off_waits_for_the_next_arrival(patch: Patch) -> None:
    """The rest of a cut turn is not woken."""
    patch.setattr("guardian.unfinished_turns.UnfinishedTurns.first", lambda *_: [])
