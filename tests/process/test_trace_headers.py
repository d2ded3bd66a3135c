"""The trace context in a real service: on notifications at once and of a stash, over a restart, and on dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes.operated_service import OperatedService, envelope_line

from notification_service.connectors.line_format import Line, decode_line, encode_line

pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OperatedService]:
    made = OperatedService(tmp_path)
    yield made
    made.clear_away()


def parent(number: int) -> bytes:
    return b"00-%032x-%016x-01" % (number, number)


def traced(line: bytes, traceparent: bytes, tracestate: bytes) -> bytes:
    decoded = decode_line(line)
    assert isinstance(decoded, Line)
    headers = (*decoded.headers, ("traceparent", traceparent), ("tracestate", tracestate))
    return encode_line(Line(decoded.value, decoded.key, headers))[:-1]


def test_each_notification_has_the_context_of_its_own_record_also_out_of_a_stash_and_after_a_restart(
    service: OperatedService,
) -> None:
    for sequence in (3, 2):
        service.append(traced(envelope_line("u", sequence), parent(sequence), b"of=%d" % sequence))
    service.start_and_wait()
    service.wait_for_report(lambda report: report.units.stashed_envelopes == 2, "both are stashed")
    assert service.stop() == 0
    service.append(traced(envelope_line("u", 1), parent(1), b"of=1"), traced(envelope_line("u", 4), b"00-odd", b"of=4"))
    service.start_and_wait().wait_for("u", 1, 2, 3, 4)
    left = [(each["headers"].get("traceparent"), each["headers"].get("tracestate")) for each in service.notifications()]
    assert left == [*((parent(number).decode(), f"of={number}") for number in (1, 2, 3)), (None, None)]


def test_a_dead_letter_keeps_the_context_as_it_came_even_if_it_is_invalid(service: OperatedService) -> None:
    lines = [traced(encode_line(Line(b'{"of": "none"}', None, ()))[:-1], each, b"a=1") for each in (parent(1), b"00-odd")]
    service.append(*lines)
    service.start_and_wait()
    service.wait_for_report(lambda _: len(service.dead_letters()) == 2, "both are dead letters")
    found = [(each["headers"]["traceparent"], each["headers"]["tracestate"]) for each in service.dead_letters()]
    assert found == [(parent(1).decode(), "a=1"), ("00-odd", "a=1")]
