"""A power cut at any call: the database comes back at the last answered commit, or at the commit that was under way."""

import subprocess
import sys
from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from random import Random

import pytest
from harness.disk.faulty_disk import Call, FaultyDisk
from harness.disk.power_cut import Disk, read_trace

from resequencer.storage_port import StorageRefused
from tests.storage.embedded.storages import memory_directory
from tests.storage.embedded.struck_program import PARTITION, UNSYNCED_LOG, SimulatedRun, check_store

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("struck_program.py")
COMMITS = 4


class Machine:
    """Runs programs in `root` on a traced disk; then a power cut is computed for each event."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.disk = FaultyDisk.make(directory / "faults", trace_of=self.root)

    def commit(self, count: int, tries: int = 1, *settings: str) -> int:
        """Let another process commit so many times; the result is 9 if one commit failed `tries` times."""
        environment = {**self.disk.environment, "PYTHONPATH": f"{PROGRAM.parents[2]}:{PROGRAM.parents[3]}"}
        command = [sys.executable, str(PROGRAM), "commit", str(self.root), str(count), str(tries), *settings]
        return subprocess.run(command, env=environment, check=False).returncode

    def cuts(self, *survivals: float) -> Iterator[tuple[str, int, Path]]:
        """Yield for each event: what happened, how many commits were answered by then, and a directory as the cut left it."""
        model, answered = Disk(self.root), 0
        for number, event in enumerate(read_trace(self.disk.trace)):
            model.take(event)
            if event.path.name == "answered":
                answered = int(event.data or answered)
                continue
            for survival in survivals:
                with memory_directory() as left:
                    model.cut(Path(left), Random(number), survival)
                    yield f"{number}: {event.call.name} of {event.path.name}, {survival}", answered, Path(left)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with memory_directory() as directory:
        yield Machine(Path(directory))


def stored_in(directory: Path) -> int:
    """Return the commit of which the storage holds everything; 0 before the first, -1 if it refuses what it finds."""
    storage = SimulatedRun(directory).make()
    try:
        store = storage.open(PARTITION)
    except StorageRefused:
        return -1
    else:
        number = store.header.next_offset or 0
        if number:
            check_store(store, number)
        return number
    finally:
        storage.close()


def lost(machine: Machine, *survivals: float) -> list[str]:
    found = []
    for when, answered, left in machine.cuts(*survivals):
        stored = stored_in(left)
        if stored not in (answered, answered + 1):
            found.append(f"{when}: commit {stored} where {answered} was answered")
    return found


CHECKPOINTS = "PRAGMA wal_autocheckpoint = 30"


@pytest.mark.parametrize("settings", [(), (CHECKPOINTS,)])
def test_the_power_may_go_at_any_call(machine: Machine, settings: tuple[str, ...]) -> None:
    assert machine.commit(COMMITS, 1, *settings) == 0
    assert lost(machine, 0, 0.5) == []


@pytest.mark.parametrize("unsynced", ["log", "database"])
def test_what_was_not_synced_is_lost_by_this_model(machine: Machine, unsynced: str) -> None:
    """The planted fault must be noticed, or the other tests would prove nothing."""
    planted = UNSYNCED_LOG if unsynced == "log" else "PRAGMA synchronous = NORMAL"
    assert machine.commit(COMMITS, 1, planted) == 0
    assert lost(machine, 0) != []


_SYNCS = [("state.db-log-1", 2), ("state.db-log-1", 3), ("state.db-wal", 4), ("state.db-wal", 5)]
"""Those of the second and the third commit, and of the first two checkpoints."""


@pytest.mark.parametrize("settings", [(), (CHECKPOINTS,)])
@pytest.mark.parametrize(("name", "skip"), _SYNCS)
def test_what_a_failed_sync_took_is_written_again(machine: Machine, name: str, skip: int, settings: tuple[str, ...]) -> None:
    fault = machine.disk.fail(name, Call.SYNC, EIO, skip=skip, times=1)
    assert machine.commit(2 * COMMITS, 2, *settings) == 0
    assert fault.struck == 1
    assert lost(machine, 0) == []


@pytest.mark.parametrize("settings", [(), (CHECKPOINTS,)])
@pytest.mark.parametrize(("name", "skip"), _SYNCS)
def test_what_a_failed_sync_took_is_written_again_though_the_process_died_of_it(
    machine: Machine, name: str, skip: int, settings: tuple[str, ...]
) -> None:
    """The next process finds a commit that looks complete, but is not on the disk."""
    fault = machine.disk.fail(name, Call.SYNC, EIO, skip=skip, times=1)
    assert machine.commit(2 * COMMITS, 1, *settings) == (9 if name == "state.db-log-1" else 0), "a checkpoint fails no commit"
    assert fault.struck == 1
    assert machine.commit(COMMITS, 1, *settings) == 0
    assert lost(machine, 0) == []
