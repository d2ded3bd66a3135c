"""Simulates units of work: the envelopes of one payment in their true order, and the expectations for them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from notification_service.simulator.expectation import ExpectedEnvelope, ExpectedProcess, ExpectedUnit
from notification_service.simulator.generate.disorder import Disordered, Fate
from notification_service.simulator.generate.envelopes import Carried, EnvelopeWriter
from notification_service.simulator.generate.flows import (
    AGAIN,
    FRAUD_CHECK,
    PAYMENT_INITIATION,
    STATUSES,
    Happening,
    draw_events,
    lengthened,
)
from notification_service.simulator.generate.garbage import Garbage
from notification_service.simulator.generate.pain001 import SinglePayment, amount_of, copy_of, message_of, references_of
from notification_service.simulator.generate.plan import Flows, Keys, Numbering, Plan, Schema
from resequencer.notification import notification_id
from resequencer.record import Headers

BUSIEST = 512
"""Envelopes of the busiest payment; a unit stashes up to 1 000 and remembers 1 024."""

_AMONG = 1_000
"""Payments are ranked in groups of this size, so a million payments have a thousand busiest ones."""


def envelopes_of(plan: Plan, number: int) -> int:
    """Return the minimum number of envelopes of payment `number` (from 0): `BUSIEST / k^exponent` for the k-th of its group.

    This is Zipf's law, bounded below by the 4 … 12 envelopes that every payment has.
    """
    block, place = divmod(number, _AMONG)
    rank = _ranks(plan.seed, block, min(_AMONG, plan.units - block * _AMONG))[place]
    return round(BUSIEST / math.pow(float(rank), plan.exponent))


@lru_cache(2)
def _ranks(seed: int, block: int, count: int) -> tuple[int, ...]:
    """Return 1 … count in a random order."""
    ranks = list(range(1, count + 1))
    Random(f"{seed}/ranks/{block}").shuffle(ranks)  # noqa: S311  # A simulation, and it must repeat itself.
    return tuple(ranks)


class SimulatedEnvelope(msgspec.Struct, frozen=True):
    """One record that a flow emits, and its expectation."""

    value: bytes | None
    headers: Headers
    expected: ExpectedEnvelope


class SimulatedUnit(msgspec.Struct, frozen=True):
    """All envelopes of a unit in their true order, and the key of their records. `expected` has no envelopes yet, because their
    arrival is decided later.
    """

    expected: ExpectedUnit
    key: bytes | None
    envelopes: tuple[SimulatedEnvelope, ...]

    @property
    def partition_key(self) -> bytes:
        """What selects the partition: the key, or without one the unit."""
        return self.expected.unit.encode() if self.key is None else self.key


class Maker(NamedTuple):
    """Makes what a simulation writes: unit `number` (from 0), an envelope of a unit with other content under its id, and lines
    that are no envelopes, without end.
    """

    unit: Callable[[int], SimulatedUnit]
    contradict: Callable[[SimulatedUnit, int], SimulatedEnvelope]
    garbage: Callable[[Random], Iterator[Garbage]]


class Course(NamedTuple):
    """What happens to a unit, in its true order, and the sequences."""

    events: tuple[Happening, ...]
    sequences: tuple[int, ...]
    numbering: Numbering


def draw_course(
    rng: Random, plan: Plan, number: int, draw: Callable[..., tuple[Happening, ...]], again: Sequence[Happening]
) -> Course:
    """Draw the course of unit `number` by `draw(rng, two_flows=…)`; what happens `again` and again makes a busy unit longer."""
    numbering = _draw_numbering(rng, plan)
    events = draw(rng, two_flows=_draw_two_flows(rng, plan))
    if plan.keys is Keys.ZIPF:
        more = Random(f"{plan.seed}/more/{number}")  # noqa: S311  # A simulation, and it must repeat itself.
        events = lengthened(events, envelopes_of(plan, number), more, again)
    return Course(events, _sequences(events, numbering), numbering)


def simulate_unit(plan: Plan, payments: Sequence[SinglePayment], number: int) -> SimulatedUnit:
    """Return unit `number` (from 0). It depends on the plan's seed, payments, flows and keys, but not on its shares."""
    rng = Random(f"{plan.seed}/unit/{number}")  # noqa: S311  # A simulation, and it must repeat itself.
    unit = f"sim-{plan.seed}-{number:07d}"
    payment = copy_of(payments[number % len(payments)], plan.seed, number // len(payments), draw_uuid(rng))
    references = references_of(payment)
    events, sequences, numbering = draw_course(rng, plan, number, draw_events, AGAIN)
    writer = EnvelopeWriter(unit, _draw_schema(rng, plan), plan.epoch_at + number * 250, rng)
    carried = _draw_carried(rng, payment, len(events))
    envelopes = _envelopes(unit, writer, events, sequences, carried)
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
    return SimulatedUnit(expected, unit.encode(), envelopes)


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
        stated = happening.reason_code or reason if event == happening.events[-1] else reason
        identifier = notification_id(unit, envelope_id, index)
        processes.append(ExpectedProcess(event, happening.flow, status, stated, identifier))
    return tuple(processes)


def _sequences(events: Sequence[Happening], numbering: Numbering) -> tuple[int, ...]:
    if numbering is Numbering.SHARED:
        return tuple(range(1, len(events) + 1))
    counts: dict[str, int] = {}
    sequences = []
    for happening in events:
        counts[happening.flow] = counts.get(happening.flow, 0) + 1
        sequences.append(counts[happening.flow])
    return tuple(sequences)


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


_OTHER_EVENTS = {
    PAYMENT_INITIATION: ("PaymentPending", "PaymentAccepted"),
    FRAUD_CHECK: ("FraudCheckFailed", "FraudCheckPassed"),
}
"""Two events of each flow that the settings have, so that the notification shows which record counted."""

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_processes = msgspec.json.Decoder(list[dict[str, Any]]).decode


def contradict(unit: SimulatedUnit, index: int) -> SimulatedEnvelope:
    """Return the unit's envelope at `index` with another first event; if there was none, with one.

    Flow, sequence and data stay, so nothing is missing whichever record counts.
    """
    envelope = unit.envelopes[index]
    expected = envelope.expected
    event = next(each for each in _OTHER_EVENTS[expected.flow] if [each] != [one.event for one in expected.processes[:1]])
    assert envelope.value is not None, "an envelope has a value"
    fields = _read_fields(envelope.value)
    processes = _read_processes(fields["processObjects"]) or [{"objectType": "PROCESS_FLOW_EVENT"}]
    processes[0]["object"] = {"eventName": event, "processFlowName": expected.flow}
    fields["processObjects"] = msgspec.Raw(msgspec.json.encode(processes))
    status, reason = STATUSES[expected.flow, event]
    first = ExpectedProcess(event, expected.flow, status, reason, notification_id(unit.expected.unit, expected.envelope_id, 0))
    return SimulatedEnvelope(
        msgspec.json.encode(fields),
        envelope.headers,
        msgspec.structs.replace(expected, processes=(first, *expected.processes[1:])),
    )


class UnitArrivals:
    """Indices are places in the unit's true order, from 0. Late copies arrive after all others, whenever they came up.

    With `is_backlog` no time passes before late copies, so they are last but not late.
    """

    def __init__(
        self,
        simulated: SimulatedUnit,
        contradict: Callable[[SimulatedUnit, int], SimulatedEnvelope],
        *,
        is_backlog: bool = False,
    ) -> None:
        self.simulated = simulated
        self._contradict = contradict
        self._is_backlog = is_backlog
        self._outstanding = len(simulated.envelopes)
        self._seen: Counter[int] = Counter()
        self._refused: Counter[int] = Counter()
        self._does_first_contradict: dict[int, bool] = {}
        self._written: dict[int, None] = {}
        self._late: dict[int, None] = {}
        self._first_ms: int | None = None
        self._last_ms = 0

    @property
    def is_complete(self) -> bool:
        """Whether all copies of all envelopes have come up."""
        return self._outstanding == 0

    def came(self, index: int, copy: Disordered[Any], due_ms: int) -> bool:
        """Note that a copy came up; return whether it must be refused, because the first of its id had other content."""
        self._seen[index] += 1
        self._outstanding -= self._seen[index] == copy.copies
        if copy.fate is Fate.LATE:
            self._late[index] = None
        elif copy.fate is Fate.WRITTEN:
            self._written[index] = None
            self._last_ms = due_ms
            self._first_ms = due_ms if self._first_ms is None else self._first_ms
        is_refused = self._does_first_contradict.setdefault(index, copy.contradicts) is not copy.contradicts
        self._refused[index] += is_refused
        return is_refused

    def envelope(self, index: int, *, contradicts: bool) -> SimulatedEnvelope:
        """Return the envelope as it happened, or with other content under its id."""
        return self._contradict(self.simulated, index) if contradicts else self.simulated.envelopes[index]

    def order(self) -> list[int]:
        """Return the envelopes that arrive at all, in the order of first arrival."""
        return [*(self._written | self._late)]

    def count_out_of_order(self) -> int:
        """Count the envelopes that first arrive after a later one of the unit."""
        highest, count = -1, 0
        for index in self.order():
            count += index < highest
            highest = max(highest, index)
        return count

    def expectation(self, partition: int) -> ExpectedUnit:
        """Return the expectation of the unit, once it is complete."""
        assert self.is_complete
        arrived = {index: place for place, index in enumerate(self.order(), start=1)}
        envelopes = tuple(
            msgspec.structs.replace(
                self.envelope(index, contradicts=self._does_first_contradict[index]).expected,
                arrived=arrived.get(index),
                late=index in arrived and index not in self._written and not self._is_backlog,
                duplicates=self._seen[index] - 1 - self._refused[index],
                conflicts=self._refused[index],
            )
            for index in range(len(self.simulated.envelopes))
        )
        lasts_ms = self._last_ms - (self._first_ms or 0)
        return msgspec.structs.replace(self.simulated.expected, partition=partition, envelopes=envelopes, lasts_ms=lasts_ms)
