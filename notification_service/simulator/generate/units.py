"""Simulates units of work: the envelopes of one payment in their true order, and the expectations for them."""

from collections.abc import Sequence
from random import Random
from uuid import UUID

import msgspec

from notification_service.simulator.expectation import ExpectedEnvelope, ExpectedProcess, ExpectedUnit
from notification_service.simulator.generate.envelopes import Carried, EnvelopeWriter
from notification_service.simulator.generate.flows import STATUSES, Happening, draw_events, lengthened
from notification_service.simulator.generate.pain001 import SinglePayment
from notification_service.simulator.generate.payment import amount_of, copy_of, message_of, references_of
from notification_service.simulator.generate.plan import Flows, Keys, Numbering, Plan, Schema
from notification_service.simulator.generate.popularity import envelopes_of
from resequencer.notification import notification_id
from resequencer.record import Headers


class SimulatedEnvelope(msgspec.Struct, frozen=True):
    """One record that a flow emits, and its expectation."""

    value: bytes
    headers: Headers
    expected: ExpectedEnvelope


class SimulatedUnit(msgspec.Struct, frozen=True):
    """All envelopes of a unit in their true order. `expected` has no envelopes yet, because their arrival is decided later."""

    expected: ExpectedUnit
    envelopes: tuple[SimulatedEnvelope, ...]


def simulate_unit(plan: Plan, payments: Sequence[SinglePayment], number: int) -> SimulatedUnit:
    """Return unit `number` (from 0). It depends on the plan's seed, payments, flows and keys, but not on its shares."""
    rng = Random(f"{plan.seed}/unit/{number}")  # noqa: S311  # A simulation, and it must repeat itself.
    unit = f"sim-{plan.seed}-{number:07d}"
    payment = copy_of(payments[number % len(payments)], number // len(payments), draw_uuid(rng))
    references = references_of(payment)
    numbering = _draw_numbering(rng, plan)
    events = draw_events(rng, two_flows=_draw_two_flows(rng, plan))
    if plan.keys is Keys.ZIPF:
        events = lengthened(events, envelopes_of(plan, number), Random(f"{plan.seed}/more/{number}"))  # noqa: S311  # As above.
    writer = EnvelopeWriter(unit, _draw_schema(rng, plan), plan.epoch_at + number * 250, rng)
    carried = _draw_carried(rng, payment, len(events))
    envelopes = _envelopes(unit, writer, events, _sequences(events, numbering), carried)
    expected = ExpectedUnit(
        unit,
        0,
        numbering,
        (),
        references.message_id,
        references.payment_information_id,
        references.end_to_end_id,
        message=message_of(payment),
        amount=amount_of(payment),
    )
    return SimulatedUnit(expected, envelopes)


def draw_uuid(rng: Random) -> str:
    """Return a version 4 UUID."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def _envelopes(
    unit: str, writer: EnvelopeWriter, events: Sequence[Happening], sequences: Sequence[int], carried: Sequence[Carried]
) -> tuple[SimulatedEnvelope, ...]:
    made = []
    for happening, sequence, brings in zip(events, sequences, carried, strict=True):
        value, envelope_id = writer.write(happening, sequence, brings)
        expected = ExpectedEnvelope(
            envelope_id,
            happening.flow,
            sequence,
            _processes(unit, envelope_id, happening),
            tuple(name for name, _ in brings.parts),
            tuple(brings.custom),
            tuple(brings.pds),
        )
        made.append(SimulatedEnvelope(value, writer.headers, expected))
    return tuple(made)


def _processes(unit: str, envelope_id: str, happening: Happening) -> tuple[ExpectedProcess, ...]:
    processes = []
    for index, event in enumerate(happening.events):
        row = STATUSES.get((happening.flow, event))
        if row is None:
            processes.append(ExpectedProcess(event, happening.flow))
            continue
        status, reason = row
        said = happening.reason_code or reason if event == happening.events[-1] else reason
        identifier = notification_id(unit, envelope_id, index)
        processes.append(ExpectedProcess(event, happening.flow, status, said, identifier))
    return tuple(processes)


def _sequences(events: Sequence[Happening], numbering: Numbering) -> list[int]:
    if numbering is Numbering.SHARED:
        return list(range(1, len(events) + 1))
    counts: dict[str, int] = {}
    sequences = []
    for happening in events:
        counts[happening.flow] = counts.get(happening.flow, 0) + 1
        sequences.append(counts[happening.flow])
    return sequences


def _draw_carried(rng: Random, payment: SinglePayment, length: int) -> list[Carried]:
    """Mostly put all three parts into the first envelope; in one unit of five spread them over the first three."""
    carried = [Carried() for _ in range(length)]
    spread = rng.random() < 0.2
    for at, part in enumerate((payment.initiation, payment.instruction, payment.transaction)):
        place = rng.randint(0, 2) if spread else 0
        carried[place].add_part(at, part)
    if rng.random() < 0.6:
        carried[rng.randint(0, length - 1)].custom["BusinessData"] = f"channel-{rng.randint(1, 9)}"
    if rng.random() < 0.6:
        carried[rng.randint(0, length - 1)].pds["pdsBusinessData"] = rng.choice(("PAYMENT", "COLLECTION", "REFUND"))
    return carried


def _draw_numbering(rng: Random, plan: Plan) -> Numbering:
    drawn = rng.choice((Numbering.SHARED, Numbering.SEPARATE))
    return drawn if plan.numbering is Numbering.MIXED else plan.numbering


def _draw_two_flows(rng: Random, plan: Plan) -> bool:
    drawn = rng.random() < 0.5
    return drawn if plan.flows is Flows.MIXED else plan.flows is Flows.TWO


def _draw_schema(rng: Random, plan: Plan) -> Schema:
    drawn = rng.choice((Schema.ONE, Schema.TWO))
    return drawn if plan.schema is Schema.MIXED else plan.schema
