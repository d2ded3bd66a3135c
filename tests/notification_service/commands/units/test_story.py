"""The story of one unit: as its own code tells it and compared with the output."""

import json

import pytest
from harness.processes.operated_service import envelope_line

from notification_service.commands.units import Output, agrees, read_output, tell
from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.simulator.verify.story import StepKind, render_story
from resequencer.notification import notification_id
from resequencer.record import Origin, Partition, Record


def arrival(sequence, at, unit="uow-1"):
    line = decode_line(envelope_line(unit, sequence))
    record = Record(Origin(Partition("story", 0), 1_000 * at), line.value, line.key, line.headers)
    return EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode(record)


def arrivals(*sequences):
    return tuple(arrival(sequence, at) for at, sequence in enumerate(sequences))


def ids(*sequences):
    return tuple(notification_id("uow-1", f"uow-1#{sequence}", 0) for sequence in sequences)


@pytest.fixture
def in_sequence(loaded):
    return loaded("payment-status-notification.resequencer.strategy = SEQUENCE")


def test_four_two_one_three_is_reported_line_by_line(in_sequence):
    telling = tell(arrivals(4, 2, 1, 3), in_sequence)
    assert [(step.kind, step.sequence) for step in telling.steps] == [
        (StepKind.ARRIVED, 4),
        (StepKind.STASHED, 4),
        (StepKind.ARRIVED, 2),
        (StepKind.STASHED, 2),
        (StepKind.ARRIVED, 1),
        (StepKind.HANDLED, 1),
        (StepKind.HANDLED, 2),
        (StepKind.ARRIVED, 3),
        (StepKind.HANDLED, 3),
        (StepKind.HANDLED, 4),
    ]
    assert [envelope.sequence for envelope in telling.handled] == [1, 2, 3, 4]
    assert render_story(telling.steps) == (
        "arrived  4  SettlementStarted     stashed (waits for sequence:1)",
        "arrived  2  PaymentValidated      stashed (waits for sequence:1)",
        "arrived  1  PaymentReceived       handled",
        "  handled  2  PaymentValidated",
        "arrived  3  PaymentAccepted       handled",
        "  handled  4  SettlementStarted",
    )


def test_what_waits_for_its_window_leaves_in_order_at_the_end(loaded):
    configuration = loaded("payment-status-notification.resequencer { strategy = WINDOW, order-by = sequence }")
    telling = tell(arrivals(4, 2, 1), configuration)
    assert [envelope.sequence for envelope in telling.handled] == [1, 2, 4]
    assert [step.kind for step in telling.steps[-3:]] == [StepKind.HANDLED] * 3


def test_a_duplicate_is_dropped_whether_its_first_waits_or_was_handled(in_sequence):
    telling = tell(arrivals(2, 2, 1, 1), in_sequence)
    assert [step.kind for step in telling.steps if step.kind is StepKind.DUPLICATE] == [StepKind.DUPLICATE] * 2
    assert [envelope.sequence for envelope in telling.handled] == [1, 2]


def test_what_left_in_the_order_of_the_story_agrees(in_sequence):
    telling = tell(arrivals(4, 2, 1, 3), in_sequence)
    assert agrees(telling, Output(ids(1, 2, 3, 4), ()))


def test_an_event_that_makes_no_notification_is_no_disagreement(in_sequence):
    telling = tell(arrivals(4, 2, 1, 3), in_sequence)
    assert agrees(telling, Output(ids(1, 3, 4), ()))


@pytest.mark.parametrize("left", [(2, 1, 3, 4), (1, 2, 3, 4, 4), (1, 1, 2), (1, 2, 5)])
def test_another_order_a_double_and_an_unexpected_one_disagree(in_sequence, left):
    telling = tell(arrivals(4, 2, 1, 3), in_sequence)
    assert not agrees(telling, Output(ids(*left), ()))


def test_only_the_units_own_lines_are_read_from_the_output(tmp_path):
    def line(unit, identity, note=""):
        headers = (("notification-id", identity.encode()),)
        return encode_line(Line(json.dumps({"note": note}).encode(), unit.encode(), headers), number=f"0-{identity}")

    file = tmp_path / "notifications.jsonl"
    lines = [line("uow-1", "A"), line("uow-11", "B"), line("uow-2", "C", "about uow-1"), line("uow-1", "D")]
    file.write_bytes(b"".join(lines) + b'{"key": "uow-1", "torn')
    assert read_output("uow-1", file).ids == ("A", "D")
    assert read_output("uow-3", file) == Output((), ())


def test_a_gathering_strategy_waits_for_what_is_missing(loaded):
    telling = tell(arrivals(1, 2), loaded(""))
    assert [step.kind for step in telling.steps] == [StepKind.ARRIVED, StepKind.STASHED] * 2
    assert telling.handled == ()
