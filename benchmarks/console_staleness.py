"""How old the console's copy of what waits is while it changes all the time: `python -m benchmarks.console_staleness [--help]`.

A process owns four partitions in which many units wait, and commits changes at a steady rate: each changes up to 500 random
units of a partition, of which a few stop to wait and others begin. This process is the console: its copy is refreshed in the
background as in service, and a page is asked for each second. `first` is the time until the copy is whole. `as of` is the age
that the page shows, `page` the time that it takes. CPU is that of this process, as a share of one core, after the first filling.
"""

import argparse
import logging
import multiprocessing
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.storage_view import RECORD, STATE, STORAGES, Subject
from notification_service.console.sources import Sources
from notification_service.console.waiting.query import WaitingFilter
from notification_service.console.waiting.refresher import WaitingUnits
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from resequencer.storage_port import Commit, PartitionStore, StashEntry, Storage, UnitChange, WaitKind, Waits

PARTITIONS = [Partition("IPF_PROCESSING_DATA", number) for number in range(4)]
AT_ONCE, FILLED_AT_ONCE = 500, 2_000
_FIRST_SECONDS = 600.0


def own(storage: Storage, units: int, rate: int, ready: Event, ending: Event) -> None:
    """Fill the partitions, then change units until the end; the last line says how many."""
    stores = [storage.open(each) for each in PARTITIONS]
    each_has = units // len(stores)
    for store in stores:
        for first in range(0, each_has, FILLED_AT_ONCE):
            _commit(store, [_waiting(number) for number in range(first, min(first + FILLED_AT_ONCE, each_has))])
    ready.set()
    began, changed = time.monotonic(), 0
    while not ending.is_set():
        for store in stores:
            numbers = random.sample(range(each_has), min(AT_ONCE, max(1, rate // 8), each_has))
            changes = [_idle(number) if random.random() < 0.1 else _waiting(number) for number in numbers]
            _commit(store, changes)
            changed += len(changes)
            time.sleep(max(0.0, changed / rate - (time.monotonic() - began)))
    print(f"  {changed / (time.monotonic() - began):,.0f} changes a second", flush=True)


def _waiting(number: int) -> UnitChange:
    at = random.randrange(10**9)
    waits = Waits(4_000_000_000_000 + at, WaitKind.DEADLINE, 1_700_000_000_000 + at, f"sequence:{at % 20}", "SEQUENCE", 1, 300)
    return UnitChange(_name(number), STATE, waits, (StashEntry(number, RECORD),))


def _idle(number: int) -> UnitChange:
    return UnitChange(_name(number), STATE, None, (), (number,))


def _name(number: int) -> str:
    return f"{random.Random(number).getrandbits(64):016x}-0a4b-4f2c-9d7e-{number:012}"


def _commit(store: PartitionStore, changes: list[UnitChange]) -> None:
    number = store.header.commit + 1
    store.commit(Commit(number, f"{number}", 0, 0, changes=tuple(changes)))


def look(subject: Subject, directory: Path, seconds: float) -> None:
    """Ask for a page each second and print how old it was."""
    clock = SystemClock()
    needed = {"open_view": subject.make_view, "run_directory": directory, "clock": clock, "storage": "benchmark"}
    sources = SimpleNamespace(**needed, find_partitions=lambda: PARTITIONS, find_report=lambda: None)
    kept = WaitingUnits(cast(Sources, cast(Any, sources)))
    kept.start()
    try:
        began = time.monotonic()
        while kept.ask(WaitingFilter()).as_of is None:
            assert time.monotonic() - began < _FIRST_SECONDS, "the copy was never whole"
            time.sleep(0.2)
        print(f"  first {time.monotonic() - began:.1f} s", flush=True)
        time.sleep(10)
        ages, pages = [], []
        began, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            asked = time.perf_counter()
            answer = kept.ask(WaitingFilter())
            pages.append(time.perf_counter() - asked)
            assert answer.as_of is not None
            ages.append((clock.now() - answer.as_of) / 1_000)
            time.sleep(1)
        used = (time.process_time() - cpu) / (time.monotonic() - began)
        print(f"  as of: p50 {_median(ages):.1f} s, longest {max(ages):.1f} s; {used:.1%} CPU")
        print(
            f"  page: p50 {1_000 * _median(pages):.0f} ms, longest {1_000 * max(pages):.0f} ms; {answer.page.total.units:,} wait"
        )
    finally:
        kept.close()


def measure(make: Callable[[Path], AbstractContextManager[Subject]], directory: Path, chosen: argparse.Namespace) -> None:
    forked = multiprocessing.get_context("fork")
    ready, ending = forked.Event(), forked.Event()
    with make(directory) as subject:
        owner = forked.Process(target=own, args=(subject.storage, chosen.units, chosen.rate, ready, ending))
        owner.start()
        try:
            while not ready.wait(1):
                assert owner.is_alive(), "the owner ended"
            look(subject, directory, chosen.seconds)
        finally:
            ending.set()
            owner.join()


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("storages", nargs="*", default=list(STORAGES), help="embedded, redis, infinispan (default: all)")
    parser.add_argument("--units", type=int, default=50_000, help="waiting units (default: 50 000)")
    parser.add_argument("--rate", type=int, default=1_000, help="changes a second (default: 1 000)")
    parser.add_argument("--seconds", type=float, default=30, help="how long to look (default: 30)")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in chosen.storages:
        print(f"{name}:", flush=True)
        with TemporaryDirectory(prefix="resequencer-benchmark-", ignore_cleanup_errors=True) as directory:
            measure(STORAGES[name], Path(directory), chosen)


if __name__ == "__main__":
    main()
