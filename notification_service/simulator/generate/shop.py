"""Simulates the orders of a shop: CloudEvents in binary and in structured mode, and the expectations for them.

Each record leaves as it came, so an expectation has the digest of its record.
"""

from base64 import b32encode
from functools import partial
from hashlib import sha256
from random import Random
from uuid import UUID

import msgspec

from guardian.headers import TRACEPARENT
from notification_service.connectors.line_format import Line, encode_line
from notification_service.simulator.expectation import ExpectedEnvelope, ExpectedProcess, ExpectedUnit, record_digest
from notification_service.simulator.generate.flows import Happening
from notification_service.simulator.generate.garbage import Writers, deal_garbage
from notification_service.simulator.generate.plan import Plan
from notification_service.simulator.generate.units import Maker, SimulatedEnvelope, SimulatedUnit, draw_course
from resequencer.clock import instant_text
from resequencer.dead_letter import DeadLetterReason
from resequencer.notification import notification_id
from resequencer.record import Headers

SHOP, WAREHOUSE = "https://shop.example/orders", "https://shop.example/warehouse"
"""The sources of the events."""

EVERY_ORDER = ("order.created", "order.paid")
"""The types of events that each order has."""

_NOTED = Happening(SHOP, ("order.noted",))
_STRUCTURED = b"application/cloudevents+json; charset=UTF-8"


def make_shop(plan: Plan) -> Maker:
    """Return what makes the orders of the plan."""
    garbage = partial(deal_garbage, unit=f"order-{plan.seed}-garbage", writers=_WRITERS)
    return Maker(partial(simulate_order, plan), contradict, garbage)


def simulate_order(plan: Plan, number: int) -> SimulatedUnit:
    """Return order `number` (from 0). It depends on the plan's seed, flows, numbering and keys, but not on its shares.

    Some keys are null, or no text and do not name the order.
    """
    rng = Random(f"{plan.seed}/order/{number}")  # noqa: S311  # A simulation, and it must repeat itself.
    unit = f"order-{plan.seed}-{number:07d}"
    key = rng.choice((unit.encode(), unit.encode(), b"\xff" + unit.encode(), None))
    course = draw_course(rng, plan, number, _draw_events, (_NOTED,))
    names = {"subject": unit} if rng.random() < 0.75 else {"subject": "order", "partitionkey": unit}
    at, envelopes = plan.epoch_at + number * 250, list[SimulatedEnvelope]()
    before = dict[str, dict[str, str]]()
    for (source, (kind,), _), sequence in zip(course.events, course.sequences, strict=True):
        at += rng.randint(200, 4_000)
        identifier = str(UUID(int=rng.getrandbits(128), version=4))
        attributes = {"specversion": "1.0", "id": identifier, "source": source, "type": kind, "time": instant_text(at), **names}
        attributes |= {"sequence": f"{sequence:06d}", **before.get(source, {})}
        envelopes.append(_envelope(rng, unit, key, attributes))
        before[source] = {"previousid": identifier}
    return SimulatedUnit(ExpectedUnit(unit, 0, course.numbering, ()), key, tuple(envelopes))


def contradict(unit: SimulatedUnit, index: int) -> SimulatedEnvelope:
    """Return the unit's event at `index` with another value."""
    envelope = unit.envelopes[index]
    is_structured = ("content-type", _STRUCTURED) in envelope.headers
    value = envelope.value or b""
    value = value.rstrip()[:-1] + b', "contradicts": true}' if is_structured else value + b" "
    digest = record_digest(unit.key, envelope.headers, value)
    return SimulatedEnvelope(value, envelope.headers, msgspec.structs.replace(envelope.expected, digest=digest))


def _draw_events(rng: Random, *, two_flows: bool) -> tuple[Happening, ...]:
    """Return the 4 … 11 events of an order in their true order: mostly delivered, some sent back, some cancelled."""
    ending = rng.random()
    shop, parcel = [*EVERY_ORDER], list[str]()
    if ending < 0.1:
        after = ["order.cancelled", "order.refunded"]
    else:
        parcel = ["order.packed", "order.sent", *["parcel.moved"] * rng.choice((0, 0, 1, 2)), "order.delivered"]
        after = ["order.returned", "order.refunded"] if ending < 0.25 else []
    warehouse = WAREHOUSE if two_flows else SHOP
    events = [Happening(SHOP, (each,)) for each in shop] + [Happening(warehouse, (each,)) for each in parcel]
    events += [Happening(SHOP, (each,)) for each in after]
    for _ in range(rng.choice((0, 0, 1, 2)) if parcel else 0):
        events.insert(rng.randint(1, len(events) - 1), _NOTED)
    return tuple(events)


def _envelope(rng: Random, unit: str, key: bytes | None, attributes: dict[str, str]) -> SimulatedEnvelope:
    source, kind = attributes["source"], attributes["type"]
    buyer = rng.choice(("Bäckerei Muster & Söhne", "山田 太郎", "O'Hara\n"))
    data = {"order": unit, "is": kind, "buyer": buyer, "cents": rng.randint(1, 10**6)}
    value, headers = (_structured if rng.random() < 0.25 else _binary)(rng, attributes, data)
    if key is None and value is None:
        value = b""  # The client cannot send a record without key and value.
    # The rule of docs/contract.md, section 19.
    event_id = b32encode(sha256(f"{source}\0{attributes['id']}".encode()).digest()).decode()[:32]
    process = ExpectedProcess(kind, source, notification_id=notification_id(unit, event_id, 0))
    digest, sequence = record_digest(key, headers, value), int(attributes["sequence"])
    return SimulatedEnvelope(value, headers, ExpectedEnvelope(event_id, source, sequence, (process,), (kind,), digest=digest))


def _structured(rng: Random, attributes: dict[str, str], data: object) -> tuple[bytes | None, Headers]:
    value = msgspec.json.encode({**attributes, "datacontenttype": "application/json", "data": data})
    return msgspec.json.format(value, indent=rng.choice((0, 2))), (("content-type", _STRUCTURED),)


def _binary(rng: Random, attributes: dict[str, str], data: object) -> tuple[bytes | None, Headers]:
    """Return value and headers. Some values are null, some no text; some headers are no text, repeat, or have our names."""
    media, chance = b"application/json", rng.random()
    value: bytes | None = msgspec.json.encode(data)
    if chance < 0.1:
        value, media = b"\x00\xff" + rng.randbytes(30), b"application/octet-stream"
    elif chance < 0.15:
        value = None
    more = rng.choice(
        (
            (),
            (),
            ((TRACEPARENT, f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01".encode()),),
            (("note", b"\xff\xfe"), ("note", b"twice")),
            (("resequencer-incomplete", b"sequence:1"), ("resequencer-source-position", b"upstream-0@17")),
        )
    )
    return value, (*((f"ce_{name}", text.encode()) for name, text in attributes.items()), ("content-type", media), *more)


def _line(unit: str, value: bytes, **changes: str | None) -> bytes:
    """Return an event in binary mode, with other attributes; one that is None is missing."""
    attributes = {"specversion": "1.0", "id": unit, "source": SHOP, "type": "order.noted", "time": "2026-03-29T00:00:00Z"}
    attributes |= {"subject": unit, "sequence": "1"}
    headers = tuple((f"ce_{name}", text.encode()) for name, text in (attributes | changes).items() if text is not None)
    return encode_line(Line(value, unit.encode(), headers))


def _of_type(unit: str, content_type: str, value: bytes) -> bytes:
    return encode_line(Line(value, unit.encode(), (("content-type", content_type.encode()),)))


_WRITERS: Writers = {
    "no-record": (DeadLetterReason.UNDECODABLE, lambda _, unit: f"{unit} is not JSON\n".encode()),
    "no-event": (DeadLetterReason.UNDECODABLE, lambda _, unit: encode_line(Line(b'{"order": 1}', unit.encode()))),
    "cut-off": (DeadLetterReason.UNDECODABLE, lambda _, unit: _of_type(unit, "application/cloudevents+json", b'{"id": "')),
    "batch": (DeadLetterReason.UNDECODABLE, lambda _, unit: _of_type(unit, "application/cloudevents-batch+json", b"[]")),
    "other-format": (DeadLetterReason.UNDECODABLE, lambda _, unit: _of_type(unit, "application/cloudevents+avro", b"\x02a")),
    "no-id": (DeadLetterReason.UNDECODABLE, lambda rng, unit: _line(unit, b"{}", id=rng.choice((None, "")))),
    "no-unit": (DeadLetterReason.NO_UNIT_OF_WORK, lambda _, unit: _line(unit, b"{}", subject=None)),
    "invalid-id": (DeadLetterReason.INVALID_ID, lambda _, unit: _line(unit, b"{}", subject=f"{unit}\x07")),
    "other-version": (DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, lambda _, unit: _line(unit, b"{}", specversion="0.3")),
}
"""What is no event for any strategy."""
