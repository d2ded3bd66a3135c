"""The requests of a schedule (docs/contract.md). Pure."""

from base64 import b32encode
from hashlib import sha256

import msgspec

from guardian.headers import DELIVERY_ID, LOOKUPS_VERSION, SCHEDULE, SCHEDULE_TICK
from notification_service.lookups.shapes import SEPARATOR
from resequencer.clock import Instant, instant_text
from resequencer.record import Headers

_ID_CHARACTERS = 32


class Request(msgspec.Struct, frozen=True):
    """A request for one key at one tick. `id` is the same whenever it is made: it is the idempotency key."""

    id: str
    key: str
    value: bytes
    headers: Headers


def make_request(schedule: str, tick: Instant, key: bytes, release: str | None, payload: msgspec.Raw) -> Request:
    """Return the request. `key` may be a key of a lookup, with its parts; in the request they are joined by slashes."""
    identifier = _id_of(schedule, tick, key)
    text = key.decode(errors="replace").replace(SEPARATOR, "/")
    at = instant_text(tick)
    headers: Headers = ((DELIVERY_ID, identifier.encode()), (SCHEDULE, schedule.encode()), (SCHEDULE_TICK, at.encode()))
    if release is not None:
        headers = (*headers, (LOOKUPS_VERSION, release.encode()))
    value = msgspec.json.encode({"schedule": schedule, "tick": at, "key": text, "payload": payload})
    return Request(identifier, text, value, headers)


def _id_of(schedule: str, tick: Instant, key: bytes) -> str:
    name = b"\x00".join((schedule.encode(), str(tick).encode(), key))
    return b32encode(sha256(name).digest()).decode()[:_ID_CHARACTERS]
