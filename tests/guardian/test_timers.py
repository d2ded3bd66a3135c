"""The timers: one heap for all keys that have an instant to wake at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from guardian.timers import Timers

KEYS = st.sampled_from("abcd")
INSTANTS = st.integers(0, 60)


class TimersAgainstADict(RuleBasedStateMachine):
    """Compares the timers with a model: one instant per key, and a clock that may also be set back."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[str] = Timers()
        self.model: dict[str, int] = {}

    @rule(key=KEYS, at=INSTANTS)
    def arm(self, key: str, at: int) -> None:
        self.timers.arm(key, at)
        self.model[key] = at

    @rule(key=KEYS)
    def disarm(self, key: str) -> None:
        self.timers.disarm(key)
        self.model.pop(key, None)

    @rule(now=INSTANTS)
    def wake(self, now: int) -> None:
        due = list(self.timers.due(now))
        assert sorted(due) == sorted(key for key, at in self.model.items() if at <= now)
        assert [self.model[key] for key in due] == sorted(self.model[key] for key in due)
        for key in due:
            del self.model[key]

    @rule(now=INSTANTS, again=INSTANTS)
    def wake_and_arm_again_at_once(self, now: int, again: int) -> None:
        due = {key for key, at in self.model.items() if at <= now}
        woken: list[str] = []
        for key in self.timers.due(now):
            woken.append(key)
            if woken.count(key) == 1:
                self.timers.arm(key, again)
                self.model[key] = again
            else:
                self.model.pop(key)
        assert set(woken) == due
        assert all(woken.count(key) == (2 if again <= now else 1) for key in due)

    @invariant()
    def no_key_is_due_before_the_next_instant(self) -> None:
        next_at = self.timers.next_at()
        assert not self.model or (next_at is not None and next_at <= min(self.model.values()))


class TimersThatAreRebuiltOften(TimersAgainstADict):
    """The old instants are removed with almost each new one."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("guardian.timers._STALE", -2)

    def teardown(self) -> None:
        self.patch.undo()


TestTimersAgainstADict = TimersAgainstADict.TestCase
TestTimersThatAreRebuiltOften = TimersThatAreRebuiltOften.TestCase


def test_old_instants_do_not_pile_up_and_nothing_that_is_armed_is_lost() -> None:
    timers: Timers[int] = Timers()
    timers.arm(-1, 5_000_000)
    for key in range(10_000):
        timers.arm(key, 1_000_000 + key)
        if key % 2:
            timers.arm(key, key)
            assert list(timers.due(key)) == [key]
        else:
            timers.disarm(key)
    assert len(timers) == 1
    assert len(timers._heap) < 2_000
    timers.arm(7, 1_000_001)
    assert list(timers.due(5_000_000)) == [7, -1]


def test_a_key_that_moves_later_is_not_woken_at_its_old_instant() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 10)
    timers.arm("a", 20)
    assert list(timers.due(19)) == []
    assert list(timers.due(20)) == ["a"]


def test_a_key_that_moves_earlier_is_woken_once() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 20)
    timers.arm("a", 10)
    assert list(timers.due(10)) == ["a"]
    assert list(timers.due(100)) == []


def test_moving_later_a_thousand_times_costs_one_entry() -> None:
    timers: Timers[str] = Timers()
    for at in range(1_000):
        timers.arm("a", at)
    assert len(timers._heap) == 1


@given(st.lists(st.tuples(KEYS, INSTANTS), max_size=40))
def test_nothing_is_left_behind_once_all_instants_have_passed(armed: list[tuple[str, int]]) -> None:
    timers: Timers[str] = Timers()
    for key, at in armed:
        timers.arm(key, at)
    list(timers.due(60))
    assert (len(timers), len(timers._heap), len(timers._queued_at), timers.next_at()) == (0, 0, 0, None)
