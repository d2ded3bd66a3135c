"""Duplicates are detected by envelope id and digest, before anything is counted."""

import pytest
from harness.driving import drive

from domain.dead_letter import DeadLetterReason
from resequencer.envelope_ids import EnvelopeIds
from resequencer.unit import REMEMBERED_ENVELOPES


def test_a_duplicate_of_a_handled_one_is_dropped_before_it_counts(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.arrive(first, envelopes.again(first), envelopes(3), envelopes(2))
    assert unit.sequences == [1, 2, 3]


def test_a_duplicate_of_a_stashed_one_is_dropped(envelopes):
    unit, third = drive("SEQUENCE"), envelopes(3)
    decision = unit.arrive(third, envelopes.again(third))
    assert decision.tally.duplicates == 1
    assert decision.change is None
    assert decision.waits is not None
    assert decision.waits.stashed == 1


def test_duplicates_within_one_poll_are_told_too(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    decision = unit.arrive_together(first, envelopes.again(first))
    assert (decision.tally.handled, decision.tally.duplicates) == (1, 1)


@pytest.mark.parametrize("state", ["handled", "stashed"])
def test_the_same_id_with_another_content_is_a_dead_letter_and_the_first_one_stands(envelopes, state):
    unit, first = drive("SEQUENCE"), envelopes(1 if state == "handled" else 2)
    unit.arrive(first, envelopes.again(first, digest=b"otherone"))
    assert [each.reason for each in unit.dead] == [DeadLetterReason.CONFLICTING_DUPLICATE]
    assert unit.dead[0].record.origin.offset == 2
    assert len(unit.handled) == (state == "handled")


def test_a_successor_knows_what_its_predecessors_handled(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.reincarnates = True
    decision = unit.arrive(first, envelopes.again(first))
    assert decision.tally.duplicates == 1


def test_ids_beyond_the_bound_are_forgotten_oldest_first():
    ids = EnvelopeIds()
    for number in range(REMEMBERED_ENVELOPES + 1):
        ids = ids.add(number.to_bytes(8, "big"), bytes(8), REMEMBERED_ENVELOPES)
    assert len(ids) == REMEMBERED_ENVELOPES
    assert ids.find((0).to_bytes(8, "big")) is None
    assert ids.find((1).to_bytes(8, "big")) == bytes(8)


def test_an_id_is_found_only_where_an_id_stands():
    crossing = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    ids = EnvelopeIds().add(b"aaaa" + crossing[:4], crossing[4:] + b"bbbb").add(crossing, b"digestof")
    assert ids.find(crossing) == b"digestof"
    assert ids.remove(crossing).find(crossing) is None
