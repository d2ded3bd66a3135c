"""The pages of a service whose records leave as they came show what there is, and no field of payments."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.console_stage import client_of
from harness.service_under_test import TOPIC, Service

from notification_service.configuration.configuration import load
from notification_service.connectors.line_format import Line, encode_line
from notification_service.events.mapped import Mapping
from notification_service.events.pass_through import PassThrough
from notification_service.events.settings import MAPPED, EventsSettings
from notification_service.payments.strategies import StrategySettings
from notification_service.wiring.console import console_sources
from resequencer.strategies.window import OrderBy

BY_HEADERS = Mapping(unit="header:order", sequence="header:version", type="header:kind")
WRITTEN = """
    ipf.processing-data.ingress {{
      transport = file, file.directory = "{here}/in"
      events {{ format = mapped, mapped {{ unit = "header:order", sequence = "header:version", type = "header:kind" }} }}
    }}
    payment-status-notification {{
      transport = file, run-directory = "{here}", handler = pass-through, storage.embedded.file = "{here}/state.db"
      resequencer {{ storage-type = embedded, {strategy} }}
    }}
"""
STRATEGIES = {
    "strategy = SEQUENCE": StrategySettings("SEQUENCE"),
    "strategy = COMPLETE, required-parts = [begun, done]": StrategySettings("COMPLETE", required_parts=("begun", "done")),
    "strategy = WINDOW, order-by = sequence": StrategySettings("WINDOW", order_by=OrderBy.SEQUENCE),
}


@pytest.mark.parametrize(
    ("strategy", "facts"),
    [
        ("strategy = SEQUENCE", ("<dd>sequence:2", "Next sequence expected")),
        ("strategy = COMPLETE, required-parts = [begun, done]", ("Parts seen", "Parts missing")),
        ("strategy = WINDOW, order-by = sequence", ("Highest released",)),
    ],
)
def test_a_units_page_has_its_stash_and_what_was_sent_of_it(tmp_path: Path, strategy: str, facts: tuple[str, ...]) -> None:
    service = Service(tmp_path, settings=STRATEGIES[strategy], records=EventsSettings(MAPPED, BY_HEADERS))
    service.handler = PassThrough()  # type: ignore[assignment]
    service.start()
    for number, kind in ((1, "begun"), (3, "went on")):
        headers = (("order", b"o-1"), ("version", b"%d" % number), ("kind", kind.encode()))
        service.put(encode_line(Line(b"\x00\xff", b"\xff", headers))[:-1])
    service.put(encode_line(Line(b"\x00", b"\xfe", (("version", b"1"),)))[:-1])
    service.run()
    service.stop()
    file = tmp_path / "service.conf"
    file.write_text(WRITTEN.format(here=tmp_path, strategy=strategy))
    client = client_of(console_sources(load(file)))
    page = client.get("/unit?id=o-1").text
    assert all(each in page.replace("<strong>", "<dd>") for each in facts), page
    assert "went on" in page, "the part that it brings"
    assert "cannot be decoded" not in page
    for of_payments in ("Payment data", "payment data", ">Events<", ">Event<", ">Status<", ">Made<"):
        assert of_payments not in page
    if strategy == "strategy = SEQUENCE":
        assert "1 notification sent" in page
    shown = client.get(f"/unit/payment-data?id=o-1&partition={TOPIC}-0").text
    assert "00 ff" in shown
    assert "Contents of o-1" in shown
    dead_letters = client.get("/dead-letters").text
    assert "no-unit-of-work" in dead_letters
    assert "\ufffd" not in dead_letters, "a key that is no text is not shown as the unit"
