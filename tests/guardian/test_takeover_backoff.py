"""The back-off of takeovers that failed: guardian/takeover.py."""

from guardian.backoff import BackoffSettings
from guardian.takeover import TakeoverBackoff
from resequencer.record import Partition

ONE, OTHER = Partition("topic", 0), Partition("topic", 1)


def later() -> TakeoverBackoff:
    return TakeoverBackoff(BackoffSettings(first_pause_ms=100, longest_pause_ms=300))


def test_what_was_never_put_off_is_due() -> None:
    assert later().is_due(ONE, 0)
    assert later().next_at is None


def test_each_time_it_is_put_off_for_twice_as_long_up_to_the_longest() -> None:
    waits, now = later(), 1_000
    for pause in (100, 200, 300, 300):
        waits.postpone(ONE, "storage", "no answer", now)
        assert not waits.is_due(ONE, now + pause - 1)
        assert waits.is_due(ONE, now + pause)
        now += pause


def test_the_first_time_is_told_from_the_others() -> None:
    waits = later()
    assert waits.postpone(ONE, "storage", "no answer", 0)
    assert not waits.postpone(ONE, "storage", "no answer", 100)
    waits.forget(ONE)
    assert waits.postpone(ONE, "storage", "no answer", 200)


def test_partitions_are_put_off_each_for_itself() -> None:
    waits = later()
    waits.postpone(ONE, "storage", "no answer", 0)
    waits.postpone(OTHER, "output", "undecided", 50)
    assert waits.next_at == 100
    waits.forget(ONE)
    assert waits.next_at == 150
    assert waits.untaken[OTHER].reason == "undecided"


def test_a_clock_that_was_set_back_delays_no_attempt() -> None:
    waits = later()
    waits.postpone(ONE, "storage", "no answer", 1_000_000)
    assert waits.is_due(ONE, 5)
