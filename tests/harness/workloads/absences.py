"""Workloads that last longer than the retention: long outages, calm stretches, hanging transactions, late duplicates."""

from collections.abc import Iterator, Sequence
from random import Random

from harness.workloads.shuffled import Phase, Workload
from msgspec.structs import replace

STEP_MS = 10_000
"""The most that the caught-up clock counts between two cycles."""

_RETENTIONS_MS = (45_000, 60_000, 90_000)
LONGEST_RETENTION_MS = max(_RETENTIONS_MS)
_FOR_EVER_MS = 1 << 60
_IDLE_TIMEOUTS_MS = (30_000, 30_000, 150_000)
_STASH_TIMEOUTS_MS = (None, None, 200_000)


def with_absences(work: Workload, random: Random, *, transactions_hang: bool) -> Workload:
    """Return the same envelopes with a short retention. Some units outlive it in memory, or because an envelope waits in them."""
    plan = work.plan
    retention_ms = random.choice(_RETENTIONS_MS)
    registry = replace(plan.registry, idle_timeout_ms=random.choice(_IDLE_TIMEOUTS_MS))
    resequencer = replace(plan.resequencer, stash_timeout_ms=random.choice(_STASH_TIMEOUTS_MS))
    plan = replace(plan, retention_ms=retention_ms, registry=registry, resequencer=resequencer)
    hangs_at = random.randrange(_count(work.phases)) if transactions_hang and random.random() < 0.6 else None
    phases = _lengthened(work.phases, random, retention_ms, hangs_at)
    return work._replace(plan=plan, phases=tuple(phases))


def without_retention(work: Workload) -> Workload:
    """Return the same workload in which no unit is ever forgotten."""
    return work._replace(plan=replace(work.plan, retention_ms=_FOR_EVER_MS))


def _count(phases: Sequence[Phase]) -> int:
    """Return how many phases have lines."""
    return sum(1 for each in phases if each.lines)


def _lengthened(phases: Sequence[Phase], random: Random, retention_ms: int, hangs_at: int | None) -> Iterator[Phase]:
    """Lengthen the phases: some lines come later, some come twice."""
    last = _count(phases) - 1
    stretches_at = {random.randrange(last + 1) for _ in range(random.choice((1, 1, 2)))}
    came: list[tuple[int, bytes]] = []
    late: list[tuple[int, bytes]] = []
    for at, phase in enumerate(phases):
        if at > last:
            yield phase
            continue
        again = random.sample(came, min(len(came), random.choice((0, 2, 4, 8))))
        due, late = (late, []) if at == last else _parted(late, random, 0.6)
        now, postponed = (phase.lines, []) if at == last else _parted(phase.lines, random, 0.7)
        late += postponed
        if at and random.random() < 0.4:
            phase = phase._replace(advance_ms=random.choice((30_000, 2 * retention_ms, 100 * retention_ms)), is_outage=True)
        lines = (*due, *now, *again)
        hung = (
            frozenset(partition for partition, _ in random.sample(lines, min(1, len(lines)))) if at == hangs_at else frozenset()
        )
        yield phase._replace(lines=lines, hung=hung)
        came += lines
        if hung or at in stretches_at:
            yield from _stretch(random, retention_ms, hung, came)


def _parted(
    lines: Sequence[tuple[int, bytes]], random: Random, share: float
) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Split the lines: about this share of them, and the others."""
    drawn = [(random.random() < share, line) for line in lines]
    return [line for is_in, line in drawn if is_in], [line for is_in, line in drawn if not is_in]


def _stretch(random: Random, retention_ms: int, hung: frozenset[int], came: Sequence[tuple[int, bytes]]) -> Iterator[Phase]:
    """Let time pass step by step, for longer than the retention. Now and then an envelope comes once more.

    A worker that dies goes back to the clock of its last commit. So most of these stretches are calm: no worker dies in them.
    """
    is_calm = random.random() < 0.7
    for _ in range(retention_ms // STEP_MS + random.choice((0, 1, 3))):
        again = (random.choice(came),) if came and random.random() < 0.2 else ()
        yield Phase(STEP_MS, again, is_outage=False, hung=hung, is_calm=is_calm)
