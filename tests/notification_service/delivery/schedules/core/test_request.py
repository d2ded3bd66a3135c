"""The requests of a schedule: their form, and an id that does not depend on the worker."""

import json

import msgspec

from notification_service.delivery.schedules.core import make_request
from resequencer.clock import instant_of

TICK = instant_of("2026-03-27T17:00:00Z")
PAYLOAD = msgspec.Raw(b'{"kind":"REPORT"}')


def test_a_request_tells_schedule_tick_key_and_payload() -> None:
    request = make_request("end-of-day", TICK, b"CUSTOMER-1", "20261121T192512123Z", PAYLOAD)
    assert json.loads(request.value) == {
        "schedule": "end-of-day",
        "tick": "2026-03-27T17:00:00.000Z",
        "key": "CUSTOMER-1",
        "payload": {"kind": "REPORT"},
    }
    assert request.key == "CUSTOMER-1"
    assert dict(request.headers) == {
        "delivery-id": request.id.encode(),
        "schedule": b"end-of-day",
        "schedule-tick": b"2026-03-27T17:00:00.000Z",
        "lookups-version": b"20261121T192512123Z",
    }


def test_the_id_is_that_of_schedule_tick_and_key_alone_and_never_changes() -> None:
    first = make_request("end-of-day", TICK, b"CUSTOMER-1", None, PAYLOAD)
    assert first.id == "4I6VAWPGUCHRE3X22653WB4ANNSRBCGB"
    assert make_request("end-of-day", TICK, b"CUSTOMER-1", "another release", msgspec.Raw(b"{}")).id == first.id
    others = (("end-of-week", TICK, b"CUSTOMER-1"), ("end-of-day", TICK + 1, b"CUSTOMER-1"), ("end-of-day", TICK, b"CUSTOMER-2"))
    assert len({first.id, *(make_request(*each, None, PAYLOAD).id for each in others)}) == 4


def test_the_parts_of_a_lookups_key_are_joined_by_slashes() -> None:
    assert make_request("s", TICK, b"Flow\x1fEvent", None, PAYLOAD).key == "Flow/Event"
