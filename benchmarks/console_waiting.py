"""What the console's copy of the waiting index costs: `python -m benchmarks.console_waiting [--units N]`.

The copy is filled with few and with many units of four partitions: random ids, a wait of each of a dozen kinds, an age of up to a
day. Measured are taking over a whole listing, the same again with nothing changed, 500 changes, and pages of 50 units: the first
page without and with each filter, a page from the middle, and a filter that nothing matches. The slowest of the pages is compared
with the same page of the small copy. Times are in milliseconds, the least of several tries for pages: other load only adds.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

from notification_service.console.waiting.copy import WaitingCopy
from notification_service.console.waiting.query import WaitingFilter, WaitingPage, read_page
from resequencer.storage_port import WaitKind, Waits
from storage.view_port import WaitingChanges, WaitingPortion

FEW, MANY = 1_000, 1_000_000
PARTITIONS = 4
AT_ONCE, CHANGED, TRIES = 2_000, 500, 3
NOW, DAY = 1_780_000_000_000, 86_400_000
LIMIT_MS = 200.0

FILTERS = {
    "all": WaitingFilter(),
    "what for": WaitingFilter(waits_for="sequence:1"),
    "kind": WaitingFilter(kind="dependency"),
    "partition": WaitingFilter(partition="T-2"),
    "older than": WaitingFilter(before=NOW - DAY // 2),
    "id": WaitingFilter(unit="uow-a"),
    "id and kind": WaitingFilter(unit="uow-", kind="dependency"),
    "all of them": WaitingFilter("sequence:1", "deadline", "T-1", "uow-b", NOW - DAY // 2),
    "id and a rare kind": WaitingFilter(unit="uow-", kind="retry"),
    "no match": WaitingFilter(waits_for="nothing"),
    "no match of an id": WaitingFilter(unit="uow-", kind="remainder"),
}


class Cost(NamedTuple):
    """Wall and CPU time, in milliseconds."""

    wall: float
    cpu: float


def listings(units: int) -> Iterator[tuple[str, list[tuple[str, Waits]]]]:
    chance = random.Random(1)
    for number in range(PARTITIONS):
        yield f"T-{number}", [(f"uow-{chance.getrandbits(128):032x}", _waits(chance)) for _ in range(units // PARTITIONS)]


def _waits(chance: random.Random) -> Waits:
    since = NOW - chance.randrange(DAY)
    if chance.random() < 0.0001:
        return Waits(NOW + 1_000, WaitKind.RETRY, since, "sequence:1", "SEQUENCE", 2, 2_000)
    if chance.random() < 0.1:
        return Waits(NOW + 1_000, WaitKind.DEPENDENCY, since, chance.choice(("rates", "bank")), "SEQUENCE", 2, 2_000)
    return Waits(since + DAY, WaitKind.DEADLINE, since, f"sequence:{chance.randint(1, 20)}", "SEQUENCE", 2, 2_000)


def portions(units: list[tuple[str, Waits]]) -> Iterator[WaitingPortion]:
    for begin in range(0, len(units), AT_ONCE):
        yield units[begin : begin + AT_ONCE]


def take(copy: WaitingCopy, listed: list[tuple[str, list[tuple[str, Waits]]]], *, is_whole: bool) -> Cost:
    wall, cpu = perf_counter(), process_time()
    for partition, units in listed:
        copy.take(partition, WaitingChanges("marker", is_whole, portions(units)), NOW)
    return Cost(1_000 * (perf_counter() - wall), 1_000 * (process_time() - cpu))


def look(copy: WaitingCopy, asked: WaitingFilter, after: str | None = None) -> tuple[Cost, WaitingPage]:
    costs = []
    for _ in range(TRIES):
        wall, cpu = perf_counter(), process_time()
        with copy.reading() as connection:
            assert connection is not None
            page = read_page(connection, asked, after, 50)
        costs.append(Cost(1_000 * (perf_counter() - wall), 1_000 * (process_time() - cpu)))
    return min(costs), page


def pages(copy: WaitingCopy) -> dict[str, Cost]:
    found = {name: look(copy, asked)[0] for name, asked in FILTERS.items()}
    middle = f"{NOW - DAY // 2}.0"
    return {**found, "the middle": look(copy, FILTERS["all"], middle)[0]}


def measured(units: int) -> dict[str, Cost]:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as name:
        copy = WaitingCopy(Path(name))
        copy.markers()
        listed = list(listings(units))
        told = {"the whole, first": take(copy, listed, is_whole=True), "the whole, unchanged": take(copy, listed, is_whole=True)}
        partition, some = listed[0]
        moved = [
            (unit, Waits(NOW, WaitKind.RETRY, waits.since, "sequence:1", "SEQUENCE", 3, 1)) for unit, waits in some[:CHANGED]
        ]
        told["500 changes"] = take(copy, [(partition, moved)], is_whole=False)
        size = sum(each.stat().st_size for each in Path(name).iterdir())
        print(f"{units:>9} units: {size / units:.0f} bytes of file for each")
        return {**told, **pages(copy)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=MANY // 10, help=f"how many units wait; default: {MANY // 10}")
    units = parser.parse_args().units
    few, many = measured(FEW), measured(units)
    for name, cost in many.items():
        print(f"{name:<22} {cost.wall:>9.1f} ms, {cost.cpu:>9.1f} ms CPU; with {FEW} units {few[name].wall:.1f} ms")
    slowest = max((many[name].wall, name) for name in (*FILTERS, "the middle"))
    print(f"slowest page: {slowest[1]}, {slowest[0]:.1f} ms, {slowest[0] / LIMIT_MS:.2f} of the limit")


if __name__ == "__main__":
    main()
