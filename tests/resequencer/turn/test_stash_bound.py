"""The bounds of a unit: the number and the bytes of stashed envelopes, and the size of its payment data."""

import pytest
from harness.driving import Envelopes, drive

from resequencer.errors import TransientError
from resequencer.storage_port import WaitKind
from resequencer.unit import Wake

FAR = range(100, 200)


def test_a_stash_of_more_bytes_than_a_unit_may_hold_is_released_as_at_its_deadline(envelopes):
    unit = drive("SEQUENCE", stash_bytes=14_000)
    large = [envelopes(number, note="x" * 2_000) for number in (9, 7, 5)]
    turn = unit.arrive(*large)
    assert unit.sequences == [5, 7, 9]
    assert [(each.cause, each.missing, each.envelopes) for each in turn.releases] == [(Wake.BOUND, "sequence:1", 3)]


@pytest.mark.parametrize("reincarnates", [False, True])
class TestUnderRetry:
    """Nothing can be handled before the head, so at the bound its next attempt is due at once."""

    def test_a_head_that_succeeds_by_then_is_followed_by_the_release(self, reincarnates, envelopes):
        unit, first = drive("SEQUENCE", stash_limit=3), envelopes(1)
        unit.reincarnates = reincarnates
        unit.handler.fail(first, TransientError("away"))
        unit.arrive(first, envelopes(10), envelopes(11))
        assert unit.sequences == []
        unit.arrive(envelopes(12))
        assert unit.sequences == [1]
        assert unit.arrive(envelopes(13)).releases[0].cause is Wake.BOUND
        assert unit.sequences == [1, 10, 11, 12, 13]
        assert [marks.incomplete for marks in unit.marks[-4:]] == ["sequence:2", *["sequence:2"] * 3]

    def test_a_head_that_fails_for_good_is_one_dead_letter_and_the_unit_goes_on(self, reincarnates, envelopes):
        unit, first = drive("SEQUENCE", stash_limit=3), envelopes(1)
        unit.reincarnates = reincarnates
        unit.handler.fail(first, *[TransientError("away")] * 3)
        unit.arrive(first, *(envelopes(number) for number in range(10, 15)))
        assert [(str(each.reason), each.error) for each in unit.dead] == [("handler-failed", "away (attempt 3 of 3)")]
        assert unit.sequences == [10, 11, 12, 13, 14]

    def test_the_bytes_count_too(self, reincarnates, envelopes):
        unit, first = drive("SEQUENCE", stash_bytes=10_000), envelopes(1)
        unit.reincarnates = reincarnates
        unit.handler.fail(first, TransientError("away"))
        unit.arrive(first, envelopes(10, note="x" * 3_800))
        assert unit.sequences == [1]

    def test_what_waits_behind_a_head_stays_about_at_the_bound_however_much_comes(self, reincarnates):
        """15 999 envelopes waited where 1 000 may."""
        unit, envelopes = drive("SEQUENCE", stash_limit=100), Envelopes()
        unit.reincarnates = reincarnates
        first = envelopes(1)
        unit.handler.fail(first, *[TransientError("away")] * 3)
        unit.arrive(first)
        most = 0
        for number in range(2_000, 1_000, -2):
            unit.arrive(envelopes(number))
            most = max(most, len(unit.unit.stash) + (unit.unit.retry is not None))
        assert 100 <= most <= 103

    def test_below_the_bound_the_head_is_waited_for(self, reincarnates, envelopes):
        unit, first = drive("SEQUENCE", stash_limit=3), envelopes(1)
        unit.reincarnates = reincarnates
        unit.handler.fail(first, TransientError("away"))
        turn = unit.arrive(first, envelopes(10), envelopes(11))
        assert turn.waits.kind is WaitKind.RETRY
        assert unit.sequences == []
        unit.wake(Wake.RETRY, after_ms=3_000)
        assert unit.sequences == [1]


def test_a_unit_gathers_no_more_bytes_of_payment_data_than_it_may_hold(envelopes):
    unit = drive("SEQUENCE", stash_bytes=10_000)
    unit.arrive(envelopes(1, bodies={"A": 4_000}), envelopes(2, bodies={"B": 4_000}))
    turn = unit.arrive(envelopes(3, bodies={"C": 4_000}))
    assert [str(each.reason) for each in turn.output] == ["too-large"]
    unit.arrive(envelopes(3))
    assert unit.sequences == [1, 2, 3]


def test_names_count_as_payment_data_too(envelopes):
    unit = drive("SEQUENCE", stash_bytes=10_000)
    assert [str(each.reason) for each in unit.arrive(envelopes(1, mds=["x" * 20_000])).output] == ["too-large"]
