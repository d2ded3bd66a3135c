"""What a seed determines before a simulated delivery begins: the receiver's settings, and what its jobs deliver."""

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import NamedTuple

from harness.receivers import receiver
from msgspec.structs import replace

from notification_service.delivery.core.jobs import Item
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.settings import OnFailed, Receiver, Steps

NAME = "r"
LIVE = f"live-{NAME}"
_PART = "p"


class Source:
    """What a job delivers: `records` are items, or None for one that is not selected. The first `visible` can be read so far.

    A position is a count of records. With `seals` the source ends with its last record.
    """

    def __init__(self, records: tuple[Item | None, ...], *, seals: bool) -> None:
        self.records = records
        self.seals = seals
        self.visible = len(records) if seals else 0

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        at = positions.get(_PART, 0)
        found = self.records[at : min(self.visible, at + most)]
        items = [each for each in found if each is not None]
        is_end = at + len(found) == self.visible
        return Portion(items, {_PART: at + len(found)}, len(found) - len(items), is_end, is_end and self.seals)

    def dedups(self, count: int | None = None) -> set[str]:
        """Return the rows that the first records make; all by default."""
        return {each.dedup for each in self.records[:count] if each is not None}


class Plan(NamedTuple):
    """`poison` are notifications that the receiver does not understand for a while, `unwanted` units and notifications it
    refuses, `barred` units that it answers 403 for a while; `sources` are by job. `retention_ms` is short in some runs.

    At each step the receiver changes with the probability `changes`, and an operator acts with that of `orders`.
    """

    receiver: Receiver
    workers: int
    sources: dict[str, Source]
    poison: frozenset[str]
    unwanted: frozenset[str]
    barred: frozenset[str]
    retention_ms: int
    changes: float
    orders: float


def plan_of(random: Random) -> Plan:
    units = [f"u{number}" for number in range(random.choice((2, 3, 8)))]
    sources: dict[str, Source] = {}
    ids: list[str] = []
    for job, most in ((LIVE, 12), ("monday", 14), ("tuesday", 10)):
        sources[job] = Source(_records(random, job, units, ids, random.randint(0, most)), seals=job != LIVE)
    poison, unwanted = random.choice((0.0, 0.1, 0.4, 0.9)), random.choice((0.0, 0.1))
    plan = Plan(
        receiver=_receiver(random),
        workers=random.choice((2, 2, 3)),
        sources=sources,
        poison=frozenset(each for each in sorted(set(ids)) if random.random() < poison),
        unwanted=frozenset(each for each in (*units, *sorted(set(ids))) if random.random() < unwanted),
        barred=frozenset(),
        retention_ms=random.choice((40_000, 3_600_000, 3_600_000)),
        changes=random.choice((0.01, 0.08)),
        orders=random.choice((0.04, 0.12)),
    )
    return plan if plan.poison else plan._replace(barred=_barred(units, ids))


def _barred(units: list[str], ids: list[str]) -> frozenset[str]:
    """Return one unit in one of four plans without poison. What else a seed determines stays as it is."""
    drawn = Random(f"barred {units} {ids}")
    return frozenset([drawn.choice(units)]) if drawn.random() < 0.25 else frozenset()


def _records(random: Random, job: str, units: list[str], ids: list[str], count: int) -> tuple[Item | None, ...]:
    """Return records: some come twice, some are damaged or not selected, and some are those of an earlier job."""
    records: list[Item | None] = []
    for number in range(count):
        drawn, own = random.random(), [each for each in records if each is not None]
        if drawn < 0.08:
            records.append(None)
        elif drawn < 0.2 and own:
            records.append(random.choice(own))
        elif drawn < 0.23:
            records.append(Item(f"{job}-{number}", "", b"", (), f"{_PART}@{number}", defect="the line is no record"))
        else:
            unit = random.choice(units)
            known = [each for each in ids if each.startswith(unit)]
            identifier = random.choice(known) if known and drawn > 0.93 else f"{unit}-{job}-{number}"
            if all(each.dedup != identifier for each in own):
                ids.append(identifier)
                records.append(Item(identifier, unit, b"{}", (), f"{_PART}@{number}", identifier))
    return tuple(records)


@cache
def _base() -> Receiver:
    return receiver(
        "timeout = 5s",
        'suspension { when { status = [503], body = "currently suspended" }, probe = 5s, most = 40s }',
        'limit.when.body = "connections allowed"',
        "reject.when.status = [422]",
        "verify { delay = 3s, attempts = 4 }",
        "retry { first = 1s, factor = 2, most = 10s, jitter = 0.2, attempts = 4 }",
    )


def _receiver(random: Random) -> Receiver:
    base = _base()
    return replace(
        base,
        steps=random.choice(list(Steps)),
        concurrency=random.choice((1, 3, 3, 8)),
        rate=random.choice((None, None, 4.0)),
        on_failed=random.choice(list(OnFailed)),
        retry=replace(base.retry, attempts=random.choice((2, 4, 8))),
    )
