"""A turn that raised is repeated: only the envelopes on which it fails are set aside, and all else goes its normal way."""

from collections.abc import Iterable
from typing import Any

import pytest
from harness.driving import PAIN_001, Driven, Envelopes, Recorder, drive
from harness.faltering import Mistakes, Place, faltering
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.notification import Notification
from resequencer.settings import ResequencerSettings
from resequencer.strategies.window import OrderBy
from resequencer.turn.decide import take_turn
from resequencer.turn.poison import guarded, take_careful_turn
from resequencer.turn.turn import Turn
from resequencer.unit import Entry, Wake

STRATEGIES = ("SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001")


class Careful(Driven):
    """A unit that repeats failed turns, as the actor and its guardian do."""

    def _turn(self, envelopes: tuple[DataEnvelope, ...], wakes: Iterable[Wake]) -> Turn:
        if self.reincarnates:
            self.reincarnate()
        try:
            self.last = take_turn(self.unit, envelopes, wakes, self.now, self.context)
        except ArithmeticError:
            self.last = take_careful_turn(self.unit, envelopes, wakes, self.now, self.context)
        self.left += self.last.output
        self._store(self.last)
        return self.last


class Faltering(Recorder):
    def __init__(self, mistakes: Mistakes) -> None:
        super().__init__()
        self._mistakes = mistakes

    def handle(self, envelope: DataEnvelope, *arguments: Any) -> Any:
        self._mistakes.look(Place.HANDLED, envelope)
        return super().handle(envelope, *arguments)


def driven(strategy: str, mistakes: Mistakes, stash_limit: int = 1_000, *, reincarnates: bool = False) -> Careful:
    made = faltering(make_strategy(StrategySettings(strategy)), mistakes)
    return Careful(made, ResequencerSettings(stash_limit=stash_limit), Faltering(mistakes), reincarnates=reincarnates)


def left(unit: Driven) -> list[tuple[str, int]]:
    """Return the output in its order, dead letters apart: their place among the notifications is not promised."""
    notified = [("notified", each.origin.offset) for each in unit.left if isinstance(each, Notification)]
    return notified + sorted(("dead", each.record.origin.offset) for each in unit.left if isinstance(each, DeadLetter))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[int, str, bool]], dict[int, Place], list[int]]:
    """Draw envelopes (number, flow, with the payment or not) in any order, where some of them fail, and how they
    come in polls.
    """
    size = draw(st.integers(2, 9))
    numbers = draw(st.permutations(range(1, size + 1)))
    came = [(number, draw(st.sampled_from("AB")), draw(st.booleans())) for number in numbers]
    places = draw(st.dictionaries(st.integers(1, size), st.sampled_from(Place), max_size=3))
    return came, places, draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))


def live(unit: Driven, came: list[tuple[int, str, bool]], polls: list[int]) -> None:
    envelopes = Envelopes()
    records = [envelopes(number, flow, mds=PAIN_001 if is_whole else (), identity=str(number)) for number, flow, is_whole in came]
    for count in polls:
        if records:
            unit.arrive_together(*records[:count])
            del records[:count]
        unit.now += 1_000
    while unit.last is not None and unit.last.waits is not None:
        unit.expire()


@pytest.mark.slow
@given(runs(), st.sampled_from(STRATEGIES), st.sampled_from((2, 1_000)), st.booleans())
def test_an_unexpected_failure_costs_what_an_expected_one_costs(
    run: Any, strategy: str, stash_limit: int, reincarnates: bool
) -> None:
    came, places, polls = run
    mistakes = {str(number): place for number, place in places.items()}
    units = [
        driven(strategy, Mistakes(mistakes, is_foreseen=foreseen), stash_limit, reincarnates=reincarnates)
        for foreseen in (True, False)
    ]
    for unit in units:
        live(unit, came, polls)
    foreseen, unforeseen = units
    assert left(unforeseen) == left(foreseen)
    assert unforeseen.stored == foreseen.stored
    assert {each.reason for each in unforeseen.dead} <= {DeadLetterReason.HANDLER_FAILED}
    assert sorted(int(each.record.origin.offset) for each in unforeseen.dead) == sorted(
        at for at, (number, _, _) in enumerate(came, 1) if number in places
    )


@given(runs(), st.sampled_from(STRATEGIES), st.sampled_from((2, 1_000)), st.booleans())
def test_whatever_step_of_ours_fails_each_poisonous_envelope_is_set_aside_once_and_all_else_is_told_once(
    run: Any, strategy: str, stash_limit: int, reincarnates: bool
) -> None:
    """This also holds if the failure comes after a part of the envelope was processed."""
    came, places, polls = run

    def failing(
        self: Turn, envelope: DataEnvelope, entry: Entry | None = None, ahead: Any = None, *, is_forced: bool = False
    ) -> None:
        is_poison = envelope.sequence in places
        if is_poison and places[envelope.sequence or 0] is Place.OBSERVED:
            raise ArithmeticError("before the attempt")
        attempt(self, envelope, entry, ahead, is_forced=is_forced)
        if is_poison:
            raise ArithmeticError("after the attempt")

    unit = driven(strategy, Mistakes(), stash_limit, reincarnates=reincarnates)
    attempt = Turn.attempt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Turn, "attempt", failing)
        live(unit, came, polls)
    offsets = {number: at for at, (number, _, _) in enumerate(came, 1)}
    poison = {offsets[number] for number in places}
    assert sorted(left(unit)) == sorted(("dead" if at in poison else "notified", at) for at in offsets.values())
    assert unit.stored is None or unit.stored.stash == ()


def test_a_guarded_context_does_not_ask_for_the_arrival_if_it_was_switched_off() -> None:
    context = drive("WINDOW", order_by=OrderBy.TIME).context
    assert guarded(context).arrived is not None
    force_setattr(context, "arrived", None)
    assert guarded(context).arrived is None


def test_the_unit_before_is_not_changed_so_the_same_turn_leads_to_the_same() -> None:
    unit, envelopes = driven("SEQUENCE", Mistakes({"3": Place.HANDLED})), Envelopes()
    unit.arrive(envelopes(2, identity="2"), envelopes(3, identity="3"))
    first = envelopes(1, identity="1")
    one, other = (take_careful_turn(unit.unit.copy(), (first,), (), unit.now, unit.context) for _ in range(2))
    assert (one.output, one.change, one.unit.saved()) == (other.output, other.change, other.unit.saved())
    assert [type(each) for each in one.output] == [Notification, Notification, DeadLetter]
