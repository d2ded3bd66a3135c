"""The deadline of stashed envelopes if it is learned."""

import msgspec
from harness.driving import Driven, Envelopes, drive
from hypothesis import given
from hypothesis import strategies as st

from resequencer.settings import LEARNED, LearnedTimeout
from resequencer.unit import Wake

AS_IF_NOT_LEARNED = 21_000
BOUNDS = LearnedTimeout(at_least_ms=1_000, at_most_ms=60_000)


class Known:
    """Profiles of flows, for any entity."""

    def __init__(self, **lateness_ms: int) -> None:
        self.lateness_ms = lateness_ms

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        del entity
        return self.lateness_ms.get(flow)


def learned(strategy: str = "SEQUENCE", bounds: LearnedTimeout = BOUNDS, **lateness_ms: int) -> Driven:
    unit = drive(strategy, stash_timeout_ms=LEARNED, learned_timeout=bounds)
    unit.profiles = Known(**lateness_ms)
    return unit


def waited_ms(unit: Driven) -> int:
    """Return the time from now until the unit's deadline."""
    assert unit.last is not None
    assert unit.last.waits is not None
    return unit.last.waits.wakes_at - unit.now


def test_a_stash_waits_as_long_as_its_oldest_flow_has_learned(envelopes):
    unit = learned(A=5_000, B=9_000)
    unit.arrive(envelopes(3, flow="A"), envelopes(4, flow="B"))
    assert waited_ms(unit) == 5_000
    unit.now += 4_999
    assert unit.wake(Wake.DEADLINE).releases == []
    (release,) = unit.wake(Wake.DEADLINE, after_ms=1).releases
    assert (release.cause, release.waited_ms, unit.sequences) == (Wake.DEADLINE, 5_000, [3, 4])


def test_a_flow_of_which_nothing_was_learned_waits_as_if_nothing_ever_was(envelopes):
    for unit in (learned(B=9_000), learned()):
        unit.arrive(envelopes(3, flow="A"))
        assert waited_ms(unit) == AS_IF_NOT_LEARNED
    without_lookups = learned()
    without_lookups.profiles = None
    without_lookups.arrive(envelopes(3, flow="A"))
    assert waited_ms(without_lookups) == AS_IF_NOT_LEARNED


def test_the_bounds_hold_for_what_was_learned_and_for_what_was_not(envelopes):
    for bounds, lateness_ms, waits_ms in (
        (LearnedTimeout(1_000, 60_000), {"A": 17}, 1_000),
        (LearnedTimeout(1_000, 60_000), {"A": 86_400_000}, 60_000),
        (LearnedTimeout(1_000, 20_000), {}, 20_000),
        (LearnedTimeout(30_000, 60_000), {}, 30_000),
    ):
        unit = learned(bounds=bounds, **lateness_ms)
        unit.arrive(envelopes(3))
        assert waited_ms(unit) == waits_ms


def test_another_release_changes_only_what_is_stashed_after_it(envelopes):
    for reincarnates in (False, True):
        unit = learned("STRICT_SEQUENCE", A=5_000, B=5_000)
        unit.reincarnates = reincarnates
        unit.arrive(envelopes(2, flow="A"))
        unit.profiles = Known(A=30_000, B=30_000)
        unit.now += 1_000
        unit.arrive(envelopes(2, flow="B"))
        assert waited_ms(unit) == 4_000, "the oldest was stashed before"
        unit.arrive(envelopes(1, flow="A"))
        assert waited_ms(unit) == 30_000, "the oldest was stashed after"


def test_without_a_release_what_was_learned_of_a_stash_still_counts(envelopes):
    unit = learned(A=5_000)
    unit.arrive(envelopes(3))
    unit.profiles = None
    unit.arrive(envelopes(4))
    assert waited_ms(unit) == 5_000


def test_bounds_that_were_changed_hold_for_what_waits_already(envelopes):
    unit = learned(A=50_000)
    unit.arrive(envelopes(3))
    unit.settings = msgspec.structs.replace(unit.settings, learned_timeout=LearnedTimeout(1_000, 10_000))
    unit.reincarnate()
    unit.arrive(envelopes(4))
    assert waited_ms(unit) == 10_000


def test_a_timeout_that_is_no_longer_learned_counts_for_what_waits_already(envelopes):
    unit = learned(A=50_000)
    unit.arrive(envelopes(3))
    unit.settings = msgspec.structs.replace(unit.settings, stash_timeout_ms=7_000)
    unit.reincarnate()
    unit.arrive(envelopes(4))
    assert waited_ms(unit) == 7_000


@given(
    strategy=st.sampled_from(["SEQUENCE", "STRICT_SEQUENCE"]),
    order=st.permutations(range(1, 7)),
    pauses=st.lists(st.integers(0, 20_000), min_size=6, max_size=6),
    min_ms=st.integers(1, 30_000),
)
def test_nothing_is_given_up_that_comes_within_the_profile(strategy, order, pauses, min_ms):
    """This holds for any bounds below the profile, and though the unit is woken before each arrival."""
    profile_ms = sum(pauses) + 1
    unit, envelopes = learned(strategy, LearnedTimeout(min_ms, 600_000), A=profile_ms), Envelopes()
    for number, pause_ms in zip(order, pauses, strict=True):
        unit.wake(Wake.DEADLINE, after_ms=pause_ms)
        unit.arrive(envelopes(number))
    assert unit.sequences == [1, 2, 3, 4, 5, 6]
    assert {(marks.incomplete, marks.late) for marks in unit.marks} == {(None, False)}


@given(first_ms=st.integers(0, 100_000), second_ms=st.integers(0, 100_000), pause_ms=st.integers(0, 100_000))
def test_a_deadline_that_stands_is_the_same_whatever_is_learned_later(first_ms, second_ms, pause_ms):
    unit, envelopes = learned(A=first_ms), Envelopes()
    deadline_at = unit.arrive(envelopes(5)).waits.wakes_at
    assert BOUNDS.at_least_ms <= deadline_at - unit.now <= BOUNDS.at_most_ms
    unit.profiles = Known(A=second_ms)
    unit.now += min(pause_ms, deadline_at - unit.now)
    unit.reincarnate()
    assert unit.arrive(envelopes(7)).waits.wakes_at == deadline_at
