"""Duplicates are detected by envelope id and digest, before anything is counted."""

import msgspec
import pytest
from harness.driving import Envelopes, drive

from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event
from resequencer.unit import REMEMBERED_ENVELOPES, Unit


def test_a_duplicate_of_a_handled_one_is_dropped_before_it_counts(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.arrive(first, envelopes.again(first), envelopes(3), envelopes(2))
    assert unit.sequences == [1, 2, 3]


def test_a_duplicate_of_a_stashed_one_is_dropped(envelopes):
    unit, third = drive("SEQUENCE"), envelopes(3)
    turn = unit.arrive(third, envelopes.again(third))
    assert turn.duplicates == 1
    assert turn.change is None
    assert turn.waits is not None
    assert turn.waits.stashed == 1


def test_duplicates_within_one_poll_are_told_too(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    turn = unit.arrive_together(first, envelopes.again(first))
    assert (turn.handled, turn.duplicates) == (1, 1)


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
    turn = unit.arrive(first, envelopes.again(first))
    assert turn.duplicates == 1


def test_ids_beyond_the_bound_are_forgotten_oldest_first():
    unit, one = Unit("uow-1", None), Envelopes()(1)
    for number in range(REMEMBERED_ENVELOPES + 1):
        unit.remember(msgspec.structs.replace(one, id_hash=number.to_bytes(8, "big"), digest=bytes(8)))
    assert unit.handled_count == REMEMBERED_ENVELOPES
    assert unit.find_digest((0).to_bytes(8, "big")) is None
    assert unit.find_digest((1).to_bytes(8, "big")) == bytes(8)


def test_an_id_is_found_only_where_an_id_stands():
    crossing = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    unit = Unit("uow-1", None)
    unit.handled = b"aaaa" + crossing + b"bbbb"
    assert unit.find_digest(crossing) is None
    unit.handled += crossing + b"digestof"
    assert unit.find_digest(crossing) == b"digestof"


def test_the_error_of_a_conflict_says_what_can_differ_in_its_format_and_what_to_do(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1)
    event = Event(first.unit, first.flow, 3, "order-1", bytes(8), bytes(8), first.record)
    unit.arrive(first, envelopes.again(first, digest=b"otherone"), event, msgspec.structs.replace(event, digest=b"otherone"))
    of_payments, of_others = (each.error for each in unit.dead)
    assert of_payments.startswith("envelope id ")
    assert "another flow, sequence or object body; if both envelopes are intended, requeue this one" in of_payments
    assert of_others == (
        "event id 'order-1' was seen before with another key, flow, sequence, type, time, previous or value; "
        "send the other event under an id of its own, and discard this one"
    )
