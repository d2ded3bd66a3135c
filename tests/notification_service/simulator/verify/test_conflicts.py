"""Records with other content under an envelope id that is taken: the first one counts."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.simulator.generate.plan import Flows
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation
from notification_service.simulator.verify.verification import verify
from resequencer.record import Origin, Partition, Record

DECODER = EnvelopeDecoder(DecodingSettings(needs_sequence=True))
CONTRADICTED: dict[str, Any] = {"conflicts": 0.2, "duplicates": 0.2, "late": 0.1, "losses": 0.05, "garbage": 0, "units": 150}


def envelopes(run: Any, partition: int = 0) -> list[DataEnvelope]:
    """Decode the lines; the offset of each is that of its line."""
    decoded, offset = [], 0
    for line in run.partition(partition).splitlines(keepends=True):
        read = decode_line(line[:-1])
        assert isinstance(read, Line)
        decoded.append(DECODER.decode(Record(Origin(Partition("in", partition), offset), read.value, read.key, read.headers)))
        offset += len(line)
    assert all(isinstance(each, DataEnvelope) for each in decoded)
    return decoded


def test_every_conflict_is_one_to_the_service_too(run: Callable):
    contradicted = run(partitions=2, **CONTRADICTED)
    refused, digests = set(), {}
    for partition in (0, 1):
        for each in envelopes(contradicted, partition):
            if digests.setdefault((each.unit, each.envelope_id), each.digest) != each.digest:
                refused.add((partition, each.offset))
    expected = {(each.partition, each.offset) for each in contradicted.garbage}
    assert refused == expected
    assert len(expected) == contradicted.summary.conflicts > 100
    assert {each.reason for each in contradicted.garbage} == {"conflicting-duplicate"}


def test_what_is_expected_is_what_came_first(run: Callable):
    contradicted = run(**CONTRADICTED)
    first: dict[tuple[str, str], DataEnvelope] = {}
    for each in envelopes(contradicted):
        first.setdefault((each.unit, each.envelope_id), each)
    for unit in contradicted.units:
        for each in unit.envelopes:
            if not each.is_lost:
                came = first[unit.unit, each.envelope_id]
                assert [one.event_name for one in came.process_objects] == [one.event for one in each.processes]
                assert (came.flow, came.sequence) == (each.flow, each.sequence)


def test_either_of_the_two_may_count(run: Callable):
    plain, contradicted = run("plain", **(CONTRADICTED | {"conflicts": 0})), run("contradicted", **CONTRADICTED)
    changed = [
        one != other
        for unit, same in zip(*(sorted(each.units, key=lambda unit: unit.unit) for each in (plain, contradicted)), strict=True)
        for one, other in zip(map(events, unit.envelopes), map(events, same.envelopes), strict=True)
    ]
    assert 0.05 < sum(changed) / len(changed) < 0.15


def events(envelope: Any) -> list[str]:
    return [each.event for each in envelope.processes]


def test_every_line_is_counted(run: Callable):
    summary = run(**CONTRADICTED).summary
    assert summary.lines == summary.envelopes - summary.lost + summary.duplicates + summary.conflicts


def test_with_conflicts_all_other_lines_are_what_they_were(run: Callable):
    fields = CONTRADICTED | {"late": 0}
    plain, contradicted = run("plain", **(fields | {"conflicts": 0})), run("contradicted", **fields)
    remaining = iter(contradicted.partition().splitlines())
    assert all(line in remaining for line in plain.partition().splitlines())


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001"])
def test_a_service_that_takes_the_first_and_refuses_the_second_is_accepted(run: Callable, faultless: Callable, strategy: str):
    rules = Rules(strategy)
    contradicted = run(flows=Flows.ONE, **CONTRADICTED)
    verdict = verify(rules, contradicted.expected_lines, *faultless(contradicted, rules))
    assert verdict.examples == ()
    assert verdict.dead_letters == contradicted.summary.conflicts


def test_a_service_that_takes_the_second_is_found_out(run: Callable, faultless: Callable):
    """Output that refuses the first record and notifies of the second."""
    rules = Rules("SEQUENCE")
    contradicted = run(**(CONTRADICTED | {"losses": 0, "late": 0, "duplicates": 0, "units": 40}))
    first: dict[tuple[str, str], int] = {}
    victim, refused = next(
        (each, first[key])
        for each in envelopes(contradicted)
        if first.setdefault(key := (each.unit, each.envelope_id), each.offset) != each.offset
        and all(one.event_name in ("PaymentPending", "PaymentAccepted") for one in each.process_objects)
        and each.process_objects
    )
    output = faultless(contradicted, rules)
    letters = [each.replace(b'@%d"' % victim.offset, b'@%d"' % refused) for each in output.dead_letters]
    given = [
        msgspec.json.encode(set_event(msgspec.json.decode(line), victim)) if victim.unit.encode() in line else line
        for line in output.notifications
    ]
    found = {name: count for name, count in verify(rules, contradicted.expected_lines, given, letters).counts if count}
    assert found[Deviation.DEAD_LETTER_MISSING] == found[Deviation.DEAD_LETTER_UNEXPECTED] == 1
    assert found.keys() & {Deviation.WRONG_CONTENT, Deviation.UNEXPECTED, Deviation.LOST}


def set_event(line: dict[str, Any], victim: DataEnvelope) -> dict[str, Any]:
    if line["headers"]["envelope-id"] == victim.envelope_id:
        line["headers"]["event-name"] = victim.process_objects[0].event_name
    return line


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["SEQUENCE", "FULL_PAIN001"])
def test_the_real_service_takes_the_first_and_refuses_the_second(served: Callable, strategy: str):
    service = served(strategy)
    summary = service.simulate(conflicts=0.1, duplicates=0.1, late=0.05, losses=0.02, garbage=0.05)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert verdict.dead_letters >= summary.conflicts > 50
