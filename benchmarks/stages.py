"""A worker's CPU time by stage: microseconds per envelope, for each stage without those inside it.

`python -m benchmarks.stages [--envelopes N] [--storage none]`. A stopwatch costs about a microsecond per call; STAGES names the
functions that have one. Compare the sum with the total without stopwatches, which is measured first.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from benchmarks import _worker
from benchmarks._workload import Workload, made
from guardian.gc_tuning import calm_collector

STAGES = {
    "read and decode lines": (
        "notification_service.connectors.files.sink.FileTransport.poll",
        "benchmarks._worker.MemoryTransport.poll",
    ),
    "decode envelopes": ("notification_service.events.decoding.EnvelopeDecoder.decode",),
    "ask who is unknown": ("guardian.actor_gateway.ActorGateway.prepare",),
    "load units": ("storage.embedded.partition.EmbeddedPartitionStore.load", "storage.none.NonePartitionStore.load"),
    "actors": ("guardian.actor_gateway.ActorGateway.decide",),
    "restore units": ("resequencer.unit_codec.UnitCodec.restore",),
    "unit registry": ("guardian.unit_registry.UnitRegistry.note",),
    "turn": ("resequencer.actor.take_turn",),
    "handler": ("notification_service.payments.process_object_handler.ProcessObjectHandler.handle",),
    "  of it: the original payment": ("notification_service.payments.original.Originals.get",),
    "  of it: the report": ("notification_service.payments.process_object_handler.encode_report",),
    "encode state, data, stash entries": (
        "resequencer.turn.decide.encode_state",
        "resequencer.turn.decide.encode_data",
        "resequencer.turn.decide.encode_entry",
    ),
    "number what leaves, encode pending": ("guardian.owned_partition.OwnedPartition.next_commit",),
    "storage commit": (
        "storage.embedded.partition.EmbeddedPartitionStore.commit",
        "storage.none.NonePartitionStore.commit",
    ),
    "acknowledge positions": ("guardian.owned_partition.OwnedPartition.note_committed",),
    "encode lines": ("notification_service.connectors.files.sink.FileSink.publish", "benchmarks._worker.MemoryTransport.publish"),
    "write and sync output": (
        "notification_service.connectors.files.output.OutputFile.append",
        "notification_service.connectors.files.positions.PositionsFile.write",
    ),
    "the rest of the cycle": ("guardian.cycle.Cycle.run_once",),
}


class Stopwatches:
    """CPU seconds by stage; a stage inside another does not count for the outer one."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._running: list[str] = []
        self._since = 0.0

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self._switch(stage)
            try:
                return function(*arguments, **named)
            finally:
                self._back()

        return timed

    def _switch(self, stage: str) -> None:
        now = time.process_time()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._running.append(stage)
        self.calls[stage] += 1
        self._since = time.process_time()

    def _back(self) -> None:
        now = time.process_time()
        self.seconds[self._running.pop()] += now - self._since
        self._since = time.process_time()


def profiled(workload: Workload, storage: str) -> tuple[float, Stopwatches]:
    """Return the CPU seconds in all, and by stage."""
    watches = Stopwatches()
    with ExitStack() as stack:
        for stage, places in STAGES.items():
            for place in places:
                stack.enter_context(patch(place, watches.around(stage, _found(place))))
        return total(workload, storage), watches


def total(workload: Workload, storage: str) -> float:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        if storage == "none":
            cycle, _ = _worker.in_process(workload.read(), Path(directory))
        else:
            cycle = _worker.on_files(workload.read(), Path(directory)).cycle
        calm_collector()
        return _worker.run_through(cycle, workload.lines).cpu


def _found(place: str) -> Callable[..., Any]:
    found: Callable[..., Any] = resolve_name(place)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--envelopes", type=int, default=40_000, help="default: %(default)s")
    arguments.add_argument("--storage", choices=("embedded", "none"), default="embedded", help="default: %(default)s")
    chosen = arguments.parse_args()
    with made(chosen.envelopes) as workload, get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        plain = processes.apply(total, (workload, chosen.storage))
        _, watches = processes.apply(profiled, (workload, chosen.storage))
    each = partial(_per_envelope, workload.lines)
    print(f"{workload.lines} envelopes, storage {chosen.storage}; CPU microseconds per envelope")
    for stage in STAGES:
        print(f"{stage:40}{each(watches.seconds[stage]):8.1f}{watches.calls[stage] / workload.lines:10.2f} calls per envelope")
    print(f"{'sum':40}{each(sum(watches.seconds.values())):8.1f}")
    print(f"{'without stopwatches':40}{each(plain):8.1f}")


def _per_envelope(envelopes: int, seconds: float) -> float:
    return seconds / envelopes * 1_000_000


if __name__ == "__main__":
    main()
