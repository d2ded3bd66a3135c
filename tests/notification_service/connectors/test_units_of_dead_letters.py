"""A dead letter names its unit by the configured format, and is edited to a record of that unit alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from notification_service.configuration.configuration import load
from notification_service.connectors.dead_letters.actions import Edit
from notification_service.connectors.dead_letters.port import AskedFor, find_flaw
from notification_service.connectors.line_format import Line, encode_line
from notification_service.wiring.composition import make_decoder
from notification_service.wiring.dead_letter_stores import open_store

SERVICE = """
    ipf.processing-data.ingress {{ transport = file, events {{ {format} }} }}
    payment-status-notification {{
      transport = file, run-directory = "{here}", handler = pass-through
      resequencer {{ storage-type = embedded, strategy = SEQUENCE }}
    }}
"""
MAPPED = 'format = mapped, mapped { unit = "value:order.id", sequence = "header:version", type = "header:type" }'
CLOUDEVENTS = "format = cloudevents"
HEAD = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/shop"), ("ce_type", b"paid"))


REFUSED, ANOTHER = "it would be a dead letter again, no-sequence", "it is of unit 'o-7', the dead letter of 'o-1'"
OTHER = b'{"order": {"id": "o-7"}}'


@pytest.mark.parametrize(
    ("events", "line", "unit", "flaw"),
    [
        (MAPPED, Line(b'{"order": {"id": "o-1"}}', b"o-7", (("version", b"1"),)), "o-1", ANOTHER),
        (MAPPED, Line(b'{"order": {"id": "o-1"}}', b"\xff"), "o-1", REFUSED),
        (MAPPED, Line(b"{", b"key", (("version", b"1"),)), "key", None),
        (CLOUDEVENTS, Line(b"\x00", None, (*HEAD, ("ce_subject", b"o-2"))), "o-2", REFUSED),
        (CLOUDEVENTS, Line(b"\x00", None, HEAD), None, REFUSED),
    ],
)
def test_its_unit_is_the_one_of_the_format_though_it_is_no_event(
    tmp_path: Path, events: str, line: Line, unit: str | None, flaw: str | None
) -> None:
    file = tmp_path / "service.conf"
    file.write_text(SERVICE.format(format=events, here=tmp_path))
    configuration = load(file)
    out = configuration.notification.output_directory
    out.mkdir()
    why = (
        ("dead-letter-reason", b"no-sequence"),
        ("dead-letter-error", b"sequence is missing"),
        ("dead-letter-source-position", b"IPF_PROCESSING_DATA-0@0"),
        ("dead-letter-at", b"2026-03-28T00:00:00.000Z"),
    )
    of_line = Line(line.value, line.key, (*line.headers, *why))
    (out / "dead-letters.jsonl").write_bytes(encode_line(of_line, number="IPF_PROCESSING_DATA-0#1"))
    store = open_store(configuration, AskedFor())
    (stored,) = store.letters()
    store.close()
    assert stored.unit == unit
    found = find_flaw(stored.edited(Edit(OTHER, "corrected")), make_decoder(configuration).decode)
    assert found is flaw is None or (found is not None and flaw is not None and found.startswith(flaw)), found
