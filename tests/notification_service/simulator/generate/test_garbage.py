from itertools import islice
from random import Random

import pytest

from notification_service.connectors.line_format import Defect, decode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.simulator.generate.garbage import KINDS, TOO_LARGE, Garbage, deal_garbage, draw_garbage
from resequencer.event import Refusal
from resequencer.record import Origin, Partition, Record

LIMIT = 20_000
DRAWN = [draw_garbage(Random(seed), f"garbage-{seed}") for seed in range(800)]


def decode(garbage: Garbage, *, needs_sequence: bool, max_value_bytes: int = 5_000_000) -> DataEnvelope | Refusal:
    read = decode_line(garbage.line.removesuffix(b"\n"))
    origin = Origin(Partition("in", 0), 0)
    record = (
        Record(origin, garbage.line, defect=read.problem)
        if isinstance(read, Defect)
        else Record(origin, read.value, read.key, read.headers)
    )
    return EnvelopeDecoder(DecodingSettings(needs_sequence, max_value_bytes)).decode(record)


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_of_each_kind_is_refused_for_its_reason(kind: str):
    drawn = [each for each in DRAWN if each.kind == kind]
    assert len(drawn) > 20
    for each in drawn:
        refused = decode(each, needs_sequence=True)
        assert isinstance(refused, Refusal)
        assert refused.reason == each.reason, each.line


@pytest.mark.parametrize("kind", ["no-sequence", "invalid-sequence"])
def test_garbage_that_is_none_without_sequences_makes_no_notification(kind: str):
    for each in DRAWN:
        if each.kind == kind:
            envelope = decode(each, needs_sequence=False)
            assert isinstance(envelope, DataEnvelope)
            assert envelope.process_objects == ()


def test_garbage_is_one_line():
    assert all(each.line.count(b"\n") == 1 and each.line.endswith(b"\n") for each in DRAWN)


@pytest.mark.parametrize("seed", range(20))
def test_no_kind_is_dealt_again_before_each_was_dealt_once(seed: int):
    dealt = [each.kind for each in islice(deal_garbage(Random(seed), "g", LIMIT), 60)]
    assert {*dealt[: len(KINDS) + 1]} == {*KINDS, TOO_LARGE}
    assert dealt.count(TOO_LARGE) == 1
    assert len({*dealt[20:]}) > 8


def test_what_is_dealt_is_refused_for_its_reason():
    for each in islice(deal_garbage(Random(3), "g", LIMIT), 100):
        refused = decode(each, needs_sequence=True, max_value_bytes=LIMIT + 1_000)
        assert isinstance(refused, DataEnvelope) if each.kind == TOO_LARGE else refused.reason == each.reason


def test_what_is_too_large_is_so_by_one_byte():
    [large] = [each for each in islice(deal_garbage(Random(3), "g", LIMIT), 20) if each.kind == TOO_LARGE]
    assert decode(large, needs_sequence=True, max_value_bytes=LIMIT).reason == large.reason
    assert isinstance(decode(large, needs_sequence=True, max_value_bytes=LIMIT + 1), DataEnvelope)


def test_without_a_limit_nothing_is_too_large():
    assert TOO_LARGE not in {each.kind for each in islice(deal_garbage(Random(3), "g"), 100)}


def test_what_is_dealt_changes_nothing_of_what_is_drawn_afterwards():
    dealing, drawing = Random(3), Random(3)
    dealt = deal_garbage(dealing, "g", LIMIT)
    for number in range(30):
        next(dealt)
        draw_garbage(drawing, f"g-{number}")
        assert dealing.random() == drawing.random()
