"""What the console costs, and how old its copy of what waits is: `python -m benchmarks.console [--only idle] [--seconds 600]`.

idle         A service on files runs without the console and with it. Then its metrics are scraped each second, and its first
             page is fetched every ten seconds. CPU is the share of one core, in percent; the ratio is the worker's beside
             the console to the worker's without it.
redis ...    With each storage, a process owns four partitions in which many units wait, and commits changes at a steady
             rate: each changes up to 500 random units of a partition, of which a few stop to wait and others begin. This
             process is the console: its copy is refreshed in the background as in service, and a page is asked for each
             second. `first s` is the time until the copy is whole. `age` is how old a page is, in seconds, `page ms` the
             time that it takes. CPU is that of this process, in percent of one core, after the first filling.
"""

import json
import logging
import random
import time
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import httpx

from benchmarks._runner import Case, Figures, WrongResult, arguments, cpu_of_family, directory, measure, steadily, wanted
from benchmarks._servers import PARTITIONS, Run, Servers, new_run, running
from benchmarks._worker import UNIT_STATE, commit, override, serving, waiting
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.storages import storage_kind
from notification_service.console.sources import Sources
from notification_service.console.waiting.units import WaitingFilter, WaitingUnits
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from resequencer.storage_port import UnitChange

GOAL_PERCENT = 2
"""Of one core, over ten minutes."""

OWNED = [Partition("IPF_PROCESSING_DATA", number) for number in range(PARTITIONS)]
AT_ONCE, FILLED_AT_ONCE = 500, 2_000
_FIRST_SECONDS = 600.0


def idle(seconds: float, *, is_enabled: bool) -> Figures:
    keys = {"http.enabled": str(is_enabled).lower(), "http.port": 0, "http.metrics.port": 0}
    with directory() as place, serving(override("run-directory", place), *(override(*each) for each in keys.items())):
        watched = {"worker %": json.loads((place / "status.json").read_text())["worker_process_id"]}
        if is_enabled:
            served = json.loads((place / "console.json").read_text())
            watched["console %"] = served["process_id"]
        time.sleep(5)  # What a start costs is not asked.
        began, before = time.monotonic(), {name: cpu_of_family(process) for name, process in watched.items()}
        for second in steadily(range(1, round(seconds) + 1), 1):
            if is_enabled:
                httpx.get(served["urls"]["metrics"]).raise_for_status()
                if second % 10 == 0:
                    httpx.get(served["urls"]["console"]).raise_for_status()
        elapsed = time.monotonic() - began
        return {name: 100 * (cpu_of_family(process) - before[name]) / elapsed for name, process in watched.items()}


def own(run: Run, storage: str, units: int, rate: int) -> float:
    """Fill the partitions, then change units until the end; return how many a second these were."""
    with run.composed(storage) as parts:
        stores = [parts.servers.storage.open(each) for each in OWNED]
        each_has = units // len(stores)
        for store in stores:
            for first in range(0, each_has, FILLED_AT_ONCE):
                commit(parts, store, map(_waiting, range(first, min(first + FILLED_AT_ONCE, each_has))))
        run.note_ready()
        began, changed = time.monotonic(), 0
        while not _end(run).exists():
            for store in stores:
                numbers = random.sample(range(each_has), min(AT_ONCE, max(1, rate // 8), each_has))
                commit(parts, store, [(_idle if random.random() < 0.1 else _waiting)(number) for number in numbers])
                changed += len(numbers)
                time.sleep(max(0.0, changed / rate - (time.monotonic() - began)))
        return changed / (time.monotonic() - began)


def _end(run: Run) -> Path:
    return run.directory / "end"


def _waiting(number: int) -> UnitChange:
    return waiting(_name(number), 300, number)


def _idle(number: int) -> UnitChange:
    return UnitChange(_name(number), UNIT_STATE, None, (), (number,))


def _name(number: int) -> str:
    return f"{random.Random(number).getrandbits(64):016x}-0a4b-4f2c-9d7e-{number:012}"


def staleness(servers: Servers, storage: str, units: int, rate: int, seconds: float) -> Figures:
    run = new_run(servers, storage, OWNED[0].topic)
    with get_context("spawn").Pool(1) as processes:
        owner = processes.apply_async(own, (run, storage, units, rate))
        run.wait_until_ready(owner)
        figures = _look(run.configuration(storage), run.directory, seconds)
        _end(run).touch()
        return {"changes/s": owner.get(), **figures}


def _look(configuration: Configuration, place: Path, seconds: float) -> Figures:
    """Ask for a page each second."""
    clock, began = SystemClock(), time.monotonic()
    sources = SimpleNamespace(
        open_view=partial(storage_kind(configuration).open_view, configuration),
        run_directory=place,
        clock=clock,
        storage="benchmark",
        find_partitions=lambda: OWNED,
        find_report=lambda: None,
    )
    with closing(WaitingUnits(cast(Sources, cast(Any, sources)))) as copy:
        copy.start()
        while copy.ask(WaitingFilter()).as_of is None:
            if time.monotonic() - began > _FIRST_SECONDS:
                raise WrongResult("the copy was never whole")
            time.sleep(0.2)
        first = time.monotonic() - began
        time.sleep(10)
        ages, pages = list[float](), list[float]()
        began, cpu = time.monotonic(), time.process_time()
        while time.monotonic() - began < seconds:
            asked = time.perf_counter()
            answer = copy.ask(WaitingFilter())
            pages.append((time.perf_counter() - asked) * 1_000)
            ages.append((clock.now() - answer.as_of) / 1_000)
            time.sleep(1)
        used = 100 * (time.process_time() - cpu) / (time.monotonic() - began)
    ages_of = {"age p50": median(ages), "age longest": max(ages), "console %": used}
    return {"first s": first, **ages_of, "page ms p50": median(pages), "page ms longest": max(pages)}


def main() -> None:
    chosen = arguments(__doc__, units=50_000, rate=1_000, seconds=30.0)
    logging.disable(logging.WARNING)
    if wanted(chosen, "idle"):
        alone = Case("idle, without it", partial(idle, chosen.seconds, is_enabled=False))
        beside = Case("idle, with it", partial(idle, chosen.seconds, is_enabled=True), alone.name, GOAL_PERCENT)
        measure(chosen, [alone, beside], {"worker %": 1})
    storages = [name for name in ("embedded", "redis", "infinispan") if wanted(chosen, name)]
    if storages:
        with running("kafka", *(name for name in storages if name != "embedded")) as servers:
            servers.make_topics(OWNED[0].topic)
            given = (chosen.units, chosen.rate, chosen.seconds)
            measure(chosen, [Case(name, partial(staleness, servers, name, *given)) for name in storages], {})


if __name__ == "__main__":
    main()
