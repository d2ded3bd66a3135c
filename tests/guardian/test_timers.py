"""One heap for whoever wants to be woken."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from guardian.timers import Wakeups

KEYS = st.sampled_from("abcd")
INSTANTS = st.integers(0, 60)


class WakeupsAgainstADict(RuleBasedStateMachine):
    """The model: one instant per key, and a clock that may also be set back."""

    def __init__(self) -> None:
        super().__init__()
        self.wakeups: Wakeups[str] = Wakeups()
        self.model: dict[str, int] = {}

    @rule(key=KEYS, at=INSTANTS)
    def arm(self, key: str, at: int) -> None:
        self.wakeups.arm(key, at)
        self.model[key] = at

    @rule(key=KEYS)
    def disarm(self, key: str) -> None:
        self.wakeups.disarm(key)
        self.model.pop(key, None)

    @rule(now=INSTANTS)
    def wake(self, now: int) -> None:
        due = list(self.wakeups.due(now))
        assert sorted(due) == sorted(key for key, at in self.model.items() if at <= now)
        assert [self.model[key] for key in due] == sorted(self.model[key] for key in due)
        for key in due:
            del self.model[key]

    @rule(now=INSTANTS, again=INSTANTS)
    def wake_and_arm_again_at_once(self, now: int, again: int) -> None:
        due = {key for key, at in self.model.items() if at <= now}
        woken: list[str] = []
        for key in self.wakeups.due(now):
            woken.append(key)
            if woken.count(key) == 1:
                self.wakeups.arm(key, again)
                self.model[key] = again
            else:
                self.model.pop(key)
        assert set(woken) == due
        assert all(woken.count(key) == (2 if again <= now else 1) for key in due)

    @invariant()
    def nobody_is_due_before_the_next_instant(self) -> None:
        next_at = self.wakeups.next_at()
        assert not self.model or (next_at is not None and next_at <= min(self.model.values()))

    @invariant()
    def it_knows_who_is_armed(self) -> None:
        assert len(self.wakeups) == len(self.model)
        assert all(self.wakeups.is_armed(key) == (key in self.model) for key in "abcd")


TestWakeupsAgainstADict = WakeupsAgainstADict.TestCase


def test_a_key_that_moves_later_is_not_woken_at_its_old_instant() -> None:
    wakeups: Wakeups[str] = Wakeups()
    wakeups.arm("a", 10)
    wakeups.arm("a", 20)
    assert list(wakeups.due(19)) == []
    assert list(wakeups.due(20)) == ["a"]


def test_a_key_that_moves_earlier_is_woken_once() -> None:
    wakeups: Wakeups[str] = Wakeups()
    wakeups.arm("a", 20)
    wakeups.arm("a", 10)
    assert list(wakeups.due(10)) == ["a"]
    assert list(wakeups.due(100)) == []


def test_moving_later_a_thousand_times_costs_one_entry() -> None:
    wakeups: Wakeups[str] = Wakeups()
    for at in range(1_000):
        wakeups.arm("a", at)
    assert len(wakeups._heap) == 1


@given(st.lists(st.tuples(KEYS, INSTANTS), max_size=40))
def test_nothing_is_left_behind_once_all_instants_have_passed(armed: list[tuple[str, int]]) -> None:
    wakeups: Wakeups[str] = Wakeups()
    for key, at in armed:
        wakeups.arm(key, at)
    list(wakeups.due(60))
    assert (len(wakeups), len(wakeups._heap), len(wakeups._queued_at), wakeups.next_at()) == (0, 0, 0, None)
