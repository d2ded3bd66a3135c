from collections.abc import Callable
from pathlib import Path

import pytest

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import decode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.simulator.verify.story import Step, StepKind, arrivals_of, find_unit, render_story

PAYMENT = "PaymentInitiationFlow"
DECODER = EnvelopeDecoder(DecodingSettings(needs_sequence=True))


def step(kind: StepKind, sequence: int, event: str, note: str = "", flow: str = PAYMENT) -> Step:
    return Step(kind, sequence, flow, event, note)


def test_a_unit_worth_telling_lost_nothing_and_arrived_out_of_order(known_run: Callable):
    found = find_unit(known_run(units=300).expected_lines)
    assert found is not None
    arrived = [each.arrived for each in found.envelopes]
    assert None not in arrived
    assert arrived != sorted(arrived)
    assert 4 <= len(arrived) <= 8
    assert not any(each.late for each in found.envelopes)


def test_where_everything_arrived_in_order_there_is_no_story(known_run: Callable):
    assert find_unit(known_run(window=0, garbage=0).expected_lines) is None


def test_arrivals_are_the_units_lines_where_they_lie(known_run: Callable):
    simulated = known_run(units=300, partitions=2, duplicates=0.2)
    unit = find_unit(simulated.expected_lines)
    arrivals = arrivals_of(unit, simulated.directory / "in", DECODER)
    assert len(arrivals) == len(unit.envelopes) + sum(each.duplicates for each in unit.envelopes)
    for each in arrivals:
        line = decode_line(simulated.partition(unit.partition)[each.offset :].partition(b"\n")[0])
        assert (line.value, line.key, line.headers) == (each.record.value, each.record.key, each.record.headers)
        expected = next(one for one in unit.envelopes if one.envelope_id == each.event_id)
        assert (each.sequence, each.flow) == (expected.sequence, expected.flow)
        assert [one.event_name for one in each.process_objects] == [process.event for process in expected.processes]
    first = list(dict.fromkeys(each.event_id for each in arrivals))
    assert first == [each.envelope_id for each in sorted(unit.envelopes, key=lambda each: each.arrived)]


def test_without_the_input_there_are_no_arrivals(known_run: Callable, tmp_path: Path):
    with pytest.raises(TransportRefused, match="run `simulate` first"):
        arrivals_of(find_unit(known_run(units=300).expected_lines), tmp_path / "elsewhere", DECODER)


def test_a_story_has_a_line_per_arrival_and_one_for_all_that_followed():
    steps = [
        step(StepKind.ARRIVED, 2, "PaymentValidated"),
        step(StepKind.STASHED, 2, "PaymentValidated", "waits for sequence:1"),
        step(StepKind.ARRIVED, 1, "PaymentReceived"),
        step(StepKind.HANDLED, 1, "PaymentReceived"),
        step(StepKind.HANDLED, 2, "PaymentValidated"),
        step(StepKind.ARRIVED, 2, "PaymentValidated"),
        step(StepKind.DUPLICATE, 2, "PaymentValidated"),
        step(StepKind.RELEASED, 4, "", "deadline, sequence:3 is missing"),
    ]
    assert render_story(steps) == (
        "arrived  2  PaymentValidated      stashed (waits for sequence:1)",
        "arrived  1  PaymentReceived       handled",
        "  handled  2  PaymentValidated",
        "arrived  2  PaymentValidated      duplicate",
        "  released  4  (data only)          (deadline, sequence:3 is missing)",
    )


def test_flows_are_named_where_there_are_several():
    lines = render_story(
        [step(StepKind.ARRIVED, 1, "PaymentReceived"), step(StepKind.ARRIVED, 2, "FraudCheckPassed", flow="FraudCheckFlow")]
    )
    assert "PaymentInitiationFlow" in lines[0]
    assert "FraudCheckFlow" in lines[1]
