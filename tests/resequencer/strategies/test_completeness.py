"""The FULL_PAIN001 strategies, which wait for complete data and ignore the sequence."""

from itertools import permutations

import pytest
from harness.driving import PAIN_001, drive

MESSAGE, INSTRUCTION, TRANSACTION = PAIN_001


def sizes(unit):
    """Return how many MDS bodies the payment data had at each attempt."""
    return [len(data.mds) for _, data, _, _ in unit.handler.seen]


def test_everything_waits_until_all_three_parts_were_seen(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(2), envelopes(1, mds=[MESSAGE, INSTRUCTION]))
    assert unit.sequences == []
    unit.arrive(envelopes(3, mds=[TRANSACTION]))
    assert unit.sequences == [3, 2, 1]


@pytest.mark.parametrize("order", list(permutations(PAIN_001)))
def test_the_parts_may_come_apart_and_in_any_order(envelopes, order):
    unit = drive("FULL_PAIN001")
    unit.arrive(*(envelopes(number, mds=[part]) for number, part in enumerate(order, 1)))
    assert unit.sequences == [3, 1, 2]
    assert sizes(unit) == [3, 3, 3]


def test_once_complete_whatever_comes_passes_through(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(5, mds=PAIN_001), envelopes(9), envelopes(2))
    assert unit.sequences == [5, 9, 2]


def test_a_later_object_of_the_same_type_replaces_the_earlier_one_whole(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(1, mds=[MESSAGE]), envelopes(2, mds=[MESSAGE, INSTRUCTION]), envelopes(3, mds=[TRANSACTION]))
    _, data, _, _ = unit.handler.seen[0]
    assert data.find_mds(MESSAGE) == b'{"at":1}'


def test_data_stashed_is_taken_over_in_order_of_arrival_before_anything_is_handled(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(1, custom=["k"]), envelopes(2, mds=PAIN_001, custom=["k"]))
    assert [data.custom for _, data, _, _ in unit.handler.seen] == [(("k", b"1"),), (("k", b"1"),)]


@pytest.mark.parametrize(
    ("strategy", "keys", "came"),
    [
        ("FULL_PAIN001_AND_CUSTOM_DATA", {"custom": ("BusinessData",)}, {"custom": ["BusinessData"]}),
        ("FULL_PAIN001_AND_PDS_DATA", {"pds": ("pdsBusinessData",)}, {"pds": ["pdsBusinessData"]}),
    ],
)
def test_the_named_data_is_waited_for_too(envelopes, strategy, keys, came):
    unit = drive(strategy, **keys)
    unit.arrive(envelopes(1, mds=PAIN_001), envelopes(2, custom=["Other"], pds=["Other"]))
    assert unit.sequences == []
    unit.arrive(envelopes(3, **came))
    assert unit.sequences == [3, 1, 2]


def test_at_the_deadline_it_goes_on_as_if_complete_and_names_what_is_missing(envelopes):
    unit = drive("FULL_PAIN001_AND_CUSTOM_DATA", custom=("BusinessData",))
    unit.arrive(envelopes(2), envelopes(1, mds=[MESSAGE, INSTRUCTION]))
    unit.expire()
    assert unit.sequences == [2, 1]
    assert {each.incomplete for each in unit.marks} == {"PAIN_001_PAYMENT_TRANSACTION,customData:BusinessData"}
    assert sizes(unit) == [2, 2]


def test_what_comes_after_an_incomplete_release_waits_one_deadline_of_its_own(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(1))
    unit.expire()
    unit.now += 5_000
    turn = unit.arrive(envelopes(2))
    assert turn.waits is not None
    assert turn.waits.wakes_at == unit.now + 21_000
    unit.expire()
    assert unit.sequences == [1, 2]


def test_a_part_that_comes_after_all_releases_what_waits_and_repeats_nothing(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(1))
    unit.expire()
    unit.arrive(envelopes(2), envelopes(3, mds=PAIN_001))
    assert unit.sequences == [1, 3, 2]
    assert [each.incomplete is None for each in unit.marks] == [False, True, True]


def test_a_record_without_a_sequence_is_as_good_as_any(envelopes):
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(None, mds=PAIN_001), envelopes(None))
    assert unit.sequences == [None, None]
