from random import Random

import pytest

from connectors.file_lines import Defect, decode_line
from domain.decoding import DecodingSettings, EnvelopeDecoder, Refusal
from domain.envelope import DataEnvelope
from domain.record import Origin, Partition, Record
from simulator.garbage import KINDS, Garbage, draw_garbage

DRAWN = [draw_garbage(Random(seed), f"garbage-{seed}") for seed in range(800)]


def decode(garbage: Garbage, *, needs_sequence: bool) -> DataEnvelope | Refusal:
    read = decode_line(garbage.line.removesuffix(b"\n"))
    origin = Origin(Partition("in", 0), 0)
    record = (
        Record(origin, garbage.line, defect=read.problem)
        if isinstance(read, Defect)
        else Record(origin, read.value, read.key, read.headers)
    )
    return EnvelopeDecoder(DecodingSettings(needs_sequence=needs_sequence)).decode(record)


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_of_each_kind_is_refused_for_its_reason(kind: str):
    drawn = [each for each in DRAWN if each.kind == kind]
    assert len(drawn) > 20
    for each in drawn:
        refused = decode(each, needs_sequence=True)
        assert isinstance(refused, Refusal)
        assert refused.reason == each.reason, each.line


@pytest.mark.parametrize("kind", ["no-sequence", "invalid-sequence"])
def test_garbage_that_is_none_without_sequences_notifies_nobody(kind: str):
    for each in DRAWN:
        if each.kind == kind:
            envelope = decode(each, needs_sequence=False)
            assert isinstance(envelope, DataEnvelope)
            assert envelope.process_objects == ()


def test_garbage_is_one_line():
    assert all(each.line.count(b"\n") == 1 and each.line.endswith(b"\n") for each in DRAWN)
