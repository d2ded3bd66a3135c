"""The key of what the bridge appends: the unit of work, as the format finds it, so that a unit stays in one partition."""

from collections.abc import Callable

import pytest

from notification_service.bridge.settings import keyed_by
from notification_service.configuration.configuration import Configuration
from notification_service.connectors.line_format import Line
from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import MappedDecoder, Mapping
from notification_service.supervision.stop_signal import StopSignal
from notification_service.wiring.bridge import make_bridge
from resequencer.event import Decoder

SETTINGS = DecodingSettings(needs_sequence=False)
CLOUD_EVENT = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/shop"),
    ("ce_type", b"paid"),
    ("ce_subject", b"order-1"),
)
ORDER = b'{"order": {"id": "order-1"}, "version": 1}'


def mapped(**places: str) -> Decoder:
    return MappedDecoder(SETTINGS, Mapping(**places))


@pytest.mark.parametrize("key", [None, b"correlation", b"order-1"])
def test_a_cloud_event_gets_its_unit_as_the_key_and_nothing_else_changes(key: bytes | None) -> None:
    keyed = keyed_by(CloudEventDecoder(SETTINGS))
    assert keyed(Line(b"\x00\xff", key, CLOUD_EVENT)) == Line(b"\x00\xff", b"order-1", CLOUD_EVENT)


@pytest.mark.parametrize("identity", ["value:version", "position", "digest"])
def test_a_mapped_record_gets_the_unit_that_the_mapping_finds(identity: str) -> None:
    keyed = keyed_by(mapped(unit="value:order.id", id=identity))
    assert [keyed(Line(ORDER, key)).key for key in (None, b"correlation")] == [b"order-1", b"order-1"]


@pytest.mark.parametrize(
    "places", [{"unit": "key:order"}, {"unit": "value:order.id", "id": "key:number"}, {"unit": "value:order.id", "flow": "key"}]
)
def test_a_key_in_which_the_format_reads_something_stays(places: dict[str, str]) -> None:
    line = Line(ORDER, b'{"order": "order-1", "number": 7}')
    assert keyed_by(mapped(**{"id": "position", **places}))(line) == line


@pytest.mark.parametrize("line", [Line(b"no JSON", b"key"), Line(b"{}", None), Line(b"", b"key")])
def test_what_is_no_event_keeps_its_key(line: Line) -> None:
    assert keyed_by(mapped(unit="value:order.id", id="position"))(line) == line


@pytest.mark.parametrize(("events", "key"), [("ipf", b"correlation"), ("cloudevents", b"order-1")])
def test_the_bridge_keys_by_the_configured_format(loaded: Callable[..., Configuration], events: str, key: bytes) -> None:
    service = "payment-status-notification { handler = pass-through, resequencer.strategy = SEQUENCE }"
    configuration = loaded(f"ipf.processing-data.ingress.events.format = {events}\n{service}")
    bridge = make_bridge(configuration, StopSignal())
    assert bridge._keyed(Line(b"{}", b"correlation", CLOUD_EVENT)).key == key
