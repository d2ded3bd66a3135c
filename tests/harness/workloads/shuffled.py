"""The input of a simulation: one seed determines the envelopes, their order, and when they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

import msgspec
from harness.faltering import Place, drawn_mistakes
from harness.service_under_test import BEGINNING, Plan, envelope_line

from guardian.unit_registry import UnitRegistrySettings
from resequencer.settings import ResequencerSettings

STRATEGIES = ("SEQUENCE", "SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001")
_OTHER_STRATEGIES = ("PREVIOUS", "PREVIOUS", "WINDOW", "WINDOW", "SEQUENCE", "STRICT_SEQUENCE")
_PARTS = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION")


class Phase(NamedTuple):
    """The clock advances, lines come (by partition), and the worker runs until nothing moves. In an outage it was down before.

    In the `hung` partitions some of the lines are in a transaction. It stays open until the first phase in which the partition is
    not hung. In a calm phase the worker has no faults.
    """

    advance_ms: int
    lines: tuple[tuple[int, bytes], ...]
    is_outage: bool
    hung: frozenset[int] = frozenset()
    is_calm: bool = False


class Workload(NamedTuple):
    """The input, and the failures of the handler: temporary ones until `away_until`, permanent ones for the ids in `never`.

    At `mistakes` our own code fails; in a reference it raises `PermanentError` there. Envelopes in `needs_server` need a server
    that is away during `server_away`.
    """

    plan: Plan
    phases: tuple[Phase, ...]
    away_until: Mapping[str, int]
    never: frozenset[str]
    mistakes: Mapping[str, Place] = {}
    needs_server: frozenset[str] = frozenset()
    server_away: range = range(0)


def workload(seed: int, max_units: int = 7, strategies: Sequence[str] = STRATEGIES, first_sequence: int | None = 1) -> Workload:
    """Return the input of a seed, whose strategy is one of these. `first_sequence` is that of the plan."""
    random = Random(f"workload {seed}")
    strategy = random.choice(strategies)
    shift = 0 if first_sequence == 1 else -1
    arrivals: list[tuple[int, bytes]] = []
    identities: list[str] = []
    for unit in range(random.randint(3, max_units)):
        partition = random.randint(0, 1)
        lines, ids = _unit(random, f"uow-{unit}", strategy, shift)
        arrivals += [(partition, line) for line in lines]
        identities += ids
    arrivals = _disordered(random, arrivals)
    for _ in range(random.randint(0, 3)):
        arrivals.insert(random.randint(0, len(arrivals)), (random.randint(0, 1), random.choice(_GARBAGE)))
    plan = Plan(
        strategy,
        batch_size=500,
        resequencer=ResequencerSettings(stash_limit=random.choice((2, 4, 1_000))),
        registry=UnitRegistrySettings(
            stash_bytes=random.choice((500, 1 << 20)), budget_bytes=Random(f"share {seed}").choice((1, 2_500, 20 << 20))
        ),
        rotate_bytes=Random(f"rotation {seed}").choice((None, 1, 1_000)),
        portion_bytes=Random(f"portions {seed}").choice((1, 3_000, 16 << 20)),
        first_sequence=first_sequence,
    )
    away, never = {}, frozenset[str]()
    if random.random() < 0.6:
        away = {each: BEGINNING + random.randint(0, 40_000) for each in identities if random.random() < 0.1}
        never = frozenset(each for each in identities if random.random() < 0.04)
    else:
        # Small batches only without retries: otherwise a retry could come due between two batches of one input.
        plan = msgspec.structs.replace(plan, batch_size=random.choice((1, 3)))
    mistakes = drawn_mistakes(Random(f"mistakes {seed}"), identities)
    return Workload(plan, tuple(_phases(random, arrivals)), away, never, mistakes)


def workload_of_strategies(seed: int, max_units: int = 7) -> Workload:
    """Return the input of a seed for a strategy that payments do not need: PREVIOUS, WINDOW, or numbers from 0 or any on."""
    work = workload(seed, max_units, _OTHER_STRATEGIES, Random(f"first {seed}").choice((0, 0, None)))
    if work.plan.strategy != "WINDOW":
        return work
    resequencer = msgspec.structs.replace(work.plan.resequencer, stash_timeout_ms=2_000)
    return work._replace(plan=msgspec.structs.replace(work.plan, resequencer=resequencer))


def uncut(work: Workload) -> Workload:
    """Return the same workload in which no turn is cut."""
    registry = msgspec.structs.replace(work.plan.registry, budget_bytes=1 << 40)
    return work._replace(plan=msgspec.structs.replace(work.plan, registry=registry))


_GARBAGE = (
    b"no json at all",
    b'{"key": "k", "value": {"processingContext": {}}}',
    b'{"key": "k", "value-base64": "/wD+"}',
    '{"key": "ü", "value": "kein Umschlag: ü€"}'.encode(),
    b'{"key": "k", "headers": {"schema-version": "9"}, "value": {"flow": "A"}}',
)


def _unit(random: Random, unit: str, strategy: str, shift: int) -> tuple[list[bytes], list[str]]:
    """Return the lines of a unit in the order of their events, some lost, some doubled, and the ids of those not lost.

    All numbers are shifted by as much. With PREVIOUS each names the one before it.
    """
    flows = ("A", "B")[: random.randint(1, 2)]
    numbers: Counter[str] = Counter()
    lines, ids = [], []
    size = random.randint(2, 6)
    lost = random.randint(1, size) if random.random() < 0.3 else None
    previous, identity = None, None
    for event in range(1, size + 1):
        flow = random.choice(flows)
        numbers[flow if strategy == "STRICT_SEQUENCE" else ""] += 1
        sequence = shift + (numbers[flow] if strategy == "STRICT_SEQUENCE" else event)
        previous, identity = identity, f"{unit}#{flow}#{sequence}"
        links = {"previous": previous} if strategy == "PREVIOUS" else {}
        if event == lost:
            continue
        mds = _PARTS if event == 1 else random.choice(((), ("PAIN_001",)))
        line = envelope_line(unit, sequence, flow, mds=mds, **links)
        lines += [line] * (1 if random.random() < 0.8 else 2)
        ids.append(identity)
        if random.random() < 0.05:
            lines.append(envelope_line(unit, sequence, flow, mds=("CONFLICT",), **links))
    return lines, ids


def _disordered(random: Random, arrivals: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    window = random.choice((1, 4, 12))
    late = [each for each in arrivals if random.random() < 0.08]
    rest = [each for each in arrivals if each not in late]
    places = sorted(range(len(rest)), key=lambda place: place + random.uniform(0, window))
    return [rest[place] for place in places] + late


def _phases(random: Random, arrivals: Sequence[tuple[int, bytes]]) -> Iterator[Phase]:
    rest = list(arrivals)
    while rest:
        count = random.randint(1, max(1, len(arrivals) // 3))
        is_outage = random.random() < 0.15
        advance_ms = random.choice((30_000, 60_000)) if is_outage else random.choice((0, 700, 3_000, 9_000, 22_000))
        yield Phase(advance_ms, tuple(rest[:count]), is_outage)
        del rest[:count]
    for _ in range(6):
        yield Phase(random.choice((12_000, 25_000)), (), is_outage=random.random() < 0.2)
    # After this time all retries and deadlines are due.
    yield Phase(600_000, (), is_outage=False)
    for _ in range(4):
        yield Phase(25_000, (), is_outage=False)
