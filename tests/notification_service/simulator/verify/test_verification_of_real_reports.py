"""Verification accepts the reports of the service's own handler: expected and actual reports agree."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness.packages import ROOT

from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.settings import HandlerSettings, make_handler
from notification_service.simulator.generate.plan import Numbering
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verification import verify
from resequencer.handler import Marks
from resequencer.record import Origin, Partition, Record

SETTINGS = ROOT / "conf" / "notification-settings.csv"


def outputs(partition: bytes, target_type: str) -> list[bytes]:
    """Return the handler's output for all envelopes, in ascending order within each unit."""
    with SETTINGS.open(encoding="utf-8", newline="") as file:
        settings = parse_notification_settings(file, str(SETTINGS))
    handler = make_handler(HandlerSettings(target_type=target_type), settings)
    decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=True))
    envelopes = []
    for offset, line in enumerate(partition.splitlines()):
        read = decode_line(line)
        assert isinstance(read, Line)
        envelope = decoder.decode(Record(Origin(Partition("IN", 0), offset), read.value, read.key, read.headers))
        assert isinstance(envelope, DataEnvelope)
        envelopes.append(envelope)
    data: dict[str, PaymentData] = {}
    lines = []
    for envelope in sorted(envelopes, key=lambda each: each.sequence or 0):
        data[envelope.unit] = data.get(envelope.unit, PaymentData()).absorb(envelope)
        made = handler.handle(envelope, data[envelope.unit], Marks(), 1_774_740_835_941).notifications
        lines.extend(encode_line(Line(each.value, each.unit.encode(), each.headers))[:-1] for each in made)
    return lines


@pytest.mark.parametrize("target_type", ["report", "report-xml", "produced-report"])
def test_the_reports_of_our_own_handler_are_accepted(run: Callable, target_type: str):
    calm = run(units=60, numbering=Numbering.SHARED, losses=0, late=0, duplicates=0, garbage=0)
    verdict = verify(Rules("SEQUENCE", target_type=target_type), calm.expected_lines, outputs(calm.partition(), target_type), [])
    assert verdict.examples == ()
    assert verdict.notifications == calm.summary.notifications


def test_the_reports_of_every_real_file_are_accepted(run: Callable, shared_samples: Path):
    files = tuple(path for path in sorted((shared_samples / "pain.001").glob("*.xml")) if "invalid" not in path.stem)
    calm = run(units=60, numbering=Numbering.SHARED, losses=0, late=0, duplicates=0, garbage=0, pain001=files)
    verdict = verify(Rules("SEQUENCE"), calm.expected_lines, outputs(calm.partition(), "report"), [])
    assert verdict.examples == ()
    assert msgspec.json.decode(calm.expected_lines[0])["type"] == "unit"
