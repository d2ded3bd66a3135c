"""What idle units cost a worker: `python -m benchmarks.idle_units [--large]`.

The same traffic, units of about eight envelopes under random names, runs first beside 1 000 idle units, then beside many:

    whole worker, in storage      file transport and embedded storage; only the database has the idle units
    core in process, in storage   storage none, which keeps 512 MB of units at most
    core in process, as actors    each idle unit was used a moment ago, and its actor is alive

The traffic is measured in pieces, in CPU microseconds per envelope, and the cheapest piece counts, because other load can only
add to the cost. Bytes are per idle unit: its content, the growth of the process, and the growth of the database. The goals: no
idle unit makes the others more than a fifth dearer, and one that only the storage needs takes at most 2 048 bytes.
"""

import os
import secrets
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from itertools import count, islice

from msgspec.structs import replace

from benchmarks._bare_loop import checked
from benchmarks._runner import Case, Figures, apart, arguments, directory, measure, resident
from benchmarks._worker import PARTITION, Workload, in_process, line_of, made, on_files, override, run_through
from guardian.cycle import Cycle
from notification_service.payments.envelope import DataEnvelope
from resequencer.batch import UnitKey
from resequencer.gc_tuning import calm_collector
from resequencer.record import Origin
from resequencer.storage_port import Snapshot, UnitChange

FEW = 1_000
PIECE = 4_000
PIECES = 6
GOAL = "at most 1.2"
ALIVE = override("resequencer.idle-timeout", "3h")
_AT_ONCE = 1_000


class Idle:
    """Makes idle units like the finished ones in the worker's storage, under random names.

    `lines` are the lines that the worker has read.
    """

    def __init__(self, cycle: Cycle, lines: list[bytes]) -> None:
        self._cycle = cycle
        self._owned = cycle.partitions.owned[PARTITION]
        self._names = (random_name(f"idle-{number}") for number in count(1))
        last = {_unit_of(line): line for line in lines}
        _store_idle(cycle)
        snapshots = self._owned.store.load(list(last))
        over = [each for each in snapshots.values() if each.data is not None and not each.stash]
        self._samples = [(each, checked(last[each.unit], Origin(PARTITION, 0))) for each in over]

    @property
    def bytes_each(self) -> float:
        """The bytes to store per unit: state, payment data and name."""
        kept = [len(each.state) + len(each.data or b"") + len(each.unit) for each, _ in self._samples]
        return sum(kept) / len(kept)

    def store(self, number: int) -> None:
        """Add so many units that only the storage knows."""
        for units in self._batches(number):
            changes = [_change(name, each) for name, (each, _) in units]
            self._owned.store.commit(self._owned._commit(secrets.token_hex(8), tuple(changes)))

    def keep_alive(self, number: int) -> None:
        """Add so many units with a live actor: each was restored, and got an envelope that it knew already."""
        actors, now = self._cycle._actors, self._cycle._tools.clock.now()
        for units in self._batches(number):
            known = {UnitKey(PARTITION, name): sample for name, sample in units}
            actors.prepare(now, tuple(known), {}, {})
            arrivals = {key: (envelope,) for key, (_, envelope) in known.items()}
            decided = actors.decide(now, arrivals, {key: snapshot for key, (snapshot, _) in known.items()})
            assert all(each.change is None for each in decided.turns), "they are duplicates"

    def _batches(self, number: int) -> Iterator[list[tuple[str, tuple[Snapshot, DataEnvelope]]]]:
        samples = (self._samples[each % len(self._samples)] for each in range(number))
        units = zip(self._names, samples, strict=False)
        while batch := list(islice(units, _AT_ONCE)):
            yield batch


def _store_idle(cycle: Cycle) -> None:
    """Let the storage have the units in which nothing waits: storage `none` gets a unit when it is idle for long."""
    registry = cycle._actors._registry
    settings = registry._settings
    registry._settings = replace(settings, idle_timeout_ms=0)
    cycle.run_once()
    registry._settings = settings


def _change(name: str, like: Snapshot) -> UnitChange:
    """Return a unit with bytes of its own, as if just used; otherwise a storage in memory would share them between units."""
    state, data = (bytes(bytearray(content)) for content in (like.state, like.data or b""))
    return UnitChange(name, state, data=data)


def random_name(name: str) -> str:
    """Return a random-looking name, always the same for the same name, so that names are spread over an index."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


def renamed(lines: list[bytes]) -> list[bytes]:
    """Return the same traffic under random unit names, as real payments have them, so that an index is hit everywhere."""
    units = [_unit_of(line) for line in lines]
    return [line.replace(unit.encode(), random_name(unit).encode()) for line, unit in zip(lines, units, strict=True)]


def _unit_of(line: bytes) -> str:
    return line_of(line).key.decode()


def measured(workload: Workload, many: int, on_disk: bool, alive: bool) -> Figures:
    lines = renamed(workload.read())
    with directory() as place:
        chosen, file = (ALIVE,) if alive else (), place / "state.db"
        cycle = on_files(lines, place, *chosen).cycle if on_disk else in_process(lines, place, *chosen)[0]
        calm_collector()
        run_through(cycle, PIECE)
        idle = Idle(cycle, lines[:PIECE])
        make = idle.keep_alive if alive else idle.store
        make(FEW)
        few, memory, size = _cheapest(cycle), resident(os.getpid()), file.stat().st_size if on_disk else 0
        make(many - FEW)
        memory, size = resident(os.getpid()) - memory, file.stat().st_size - size if on_disk else 0
        many_us = _cheapest(cycle)
    figures = {"idle units": many, "us beside few": few, "us beside many": many_us, "ratio": many_us / few}
    return {**figures, "content B": idle.bytes_each, "memory B": memory / (many - FEW), "file B": size / (many - FEW)}


def _cheapest(cycle: Cycle) -> float:
    read = cycle.metrics.counts["records"]
    pieces = [run_through(cycle, read + PIECE * number).cpu for number in range(1, PIECES + 1)]
    return min(pieces) / PIECE * 1_000_000


def main() -> None:
    large = {"stored": 1_000_000, "kept": 240_000, "actors": 1_000_000}
    chosen = arguments(__doc__, large=large, stored=200_000, kept=200_000, actors=50_000)
    with made(PIECE * (2 * PIECES + 1) + 500) as workload:
        how = {
            "whole worker, in storage": (chosen.stored, True, False),
            "core in process, in storage": (chosen.kept, False, False),
            "core in process, as actors": (chosen.actors, False, True),
        }
        measure(chosen, [Case(name, partial(apart, measured, workload, *each), goal=GOAL) for name, each in how.items()], {})


if __name__ == "__main__":
    main()
