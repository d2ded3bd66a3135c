"""Runs an embedded storage on a faulty disk. It is a program, because the faults are under a whole process.

struck_program.py strike NAME CALLS ERRNO TIMES TORN     a run for each such call, which is struck; prints the results as JSON
struck_program.py commit DIRECTORY COUNT TRIES           COUNT more commits; the file `answered` has the number of the last one
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from harness.disk.faulty_disk import Call, FaultyDisk

from resequencer.record import Partition
from resequencer.storage_port import (
    Commit,
    Pending,
    Snapshot,
    StashEntry,
    StorageRefused,
    StorageUnavailable,
    UnitChange,
    WaitKind,
    Waits,
)
from storage.embedded import database, partition, write_ahead_log
from storage.embedded.partition import EmbeddedPartitionStore
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage

Answer = TypeVar("Answer")
PARTITION = Partition("T", 0)
UNITS = [f"unit-{number}" for number in range(8)]
COMMITS = 6
UNSYNCED_LOG = "the log is not synced"
_LONGEST_WAIT = 20


class SimulatedRun:
    """Opens, commits, expires, closes. Unavailable calls are repeated; after a refusal the run starts again, once."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "state.db"
        self.outages: set[str] = set()
        self.refusals: list[str] = []

    def live(self) -> None:
        while True:
            storage = self.make()
            try:
                self._commit_all(storage)
            except StorageRefused as refusal:
                if self.refusals:
                    raise
                self.refusals.append(str(refusal))
            else:
                return
            finally:
                storage.close()

    def make(self) -> EmbeddedStorage:
        return EmbeddedStorage(EmbeddedSettings(self.file, 500), lambda: os.urandom(8).hex())

    def _commit_all(self, storage: EmbeddedStorage) -> None:
        store = self._until_answered(lambda: storage.open(PARTITION))
        done, before = store.header.next_offset or 0, store.header.commit
        for number in range(done + 1, COMMITS + 1):
            commit = commit_of(number, before + number - done)
            self._until_answered(lambda commit=commit: store.commit(commit))  # type: ignore[misc]
            check(self._until_answered(lambda: store.load(UNITS)), number)
        self._until_answered(lambda: store.expire(2, ()))

    def _until_answered(self, call: Callable[[], Answer]) -> Answer:
        for _ in range(_LONGEST_WAIT):
            try:
                return call()
            except StorageUnavailable as error:
                self.outages.add(str(error).replace(f"{self.file.parent}/", ""))
        raise AssertionError(f"never answered: {self.outages}")


def commit_of(number: int, commit_number: int) -> Commit:
    """Return a commit that replaces everything that the one before stored."""
    body, waits = b"%d" % number, Waits(1, WaitKind.DEADLINE, 1, "sequence:3", "SEQUENCE", 1, 1)
    changes = tuple(UnitChange(unit, body, waits, (StashEntry(number, body * 400),), (number - 1,), body * 400) for unit in UNITS)
    return Commit(commit_number, f"attempt-{number}", number, number, 0, changes, (Pending(number, body),), number - 1)


def check(loaded: Mapping[str, Snapshot], number: int) -> None:
    """Check that exactly the values of this commit are loaded."""
    body = b"%d" % number
    whole = {unit: Snapshot(unit, body, body * 400, (StashEntry(number, body * 400),)) for unit in UNITS}
    assert loaded == whole, f"not all of commit {number}"


def check_store(store: EmbeddedPartitionStore, number: int) -> None:
    """Check that everything in the partition is of this commit."""
    check(store.load(UNITS), number)
    assert store.header.next_offset == store.header.highest_number == number
    assert list(store.pending()) == [Pending(number, b"%d" % number)]
    assert len(store.waiting()) == len(UNITS)


def strike_every_call(name: str, calls: Call, error: int, times: int, torn: int) -> dict[str, object]:
    """Do a run for each call and strike that call, until a run has no call left to strike."""
    disk, problems, skip = FaultyDisk.under_this_process(), [], 0
    outages, refusals = set[str](), 0
    while True:
        with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
            run = SimulatedRun(Path(directory))
            fault = disk.fail(name, calls, error, skip=skip, times=times, torn=torn)
            try:
                run.live()
            except Exception as problem:
                problems.append(f"call {skip}: {type(problem).__name__}: {problem}")
            struck = fault.struck
            fault.lift()
            if not struck:
                return {"runs": skip, "outages": sorted(outages), "refusals": refusals, "problems": problems}
            problems += [f"call {skip}: {problem}" for problem in _left_behind(run)]
            outages |= run.outages
            refusals += len(run.refusals)
        skip += 1


def _left_behind(run: SimulatedRun) -> list[str]:
    """Return what is wrong with the files that another process finds afterwards."""
    try:
        storage = run.make()
        check_store(storage.open(PARTITION), COMMITS)
        storage.close()
    except Exception as problem:
        return [f"afterwards: {type(problem).__name__}: {problem}"]
    names = {each.name for each in run.file.parent.iterdir()}
    return [f"left beside it: {names}"] if names != {"state.db"} else []


def commit_and_note(directory: Path, count: int, tries: int) -> None:
    """Commit so many times. When a commit fails for the last of its `tries`, the process ends at once and closes nothing."""
    storage = SimulatedRun(directory).make()
    store = storage.open(PARTITION)
    answered = os.open(directory / "answered", os.O_CREAT | os.O_WRONLY)
    done = store.header.next_offset or 0
    os.pwrite(answered, b"%d" % done, 0)
    for number in range(done + 1, done + count + 1):
        for attempt in range(tries):
            try:
                store.commit(commit_of(number, number - done))
                break
            except StorageUnavailable:
                if attempt + 1 == tries:
                    os._exit(9)
        os.pwrite(answered, b"%d" % number, 0)
    os._exit(0)


if __name__ == "__main__":
    # There is a checkpoint of each kind at about every second commit, and one after them: its calls to the disk are struck, too.
    write_ahead_log.LARGEST_BYTES = 0
    partition._COMMITS = 2
    if sys.argv[1] == "strike":
        name, *numbers = sys.argv[2:]
        database._SETTINGS = (*database._SETTINGS, "PRAGMA wal_autocheckpoint = 30")
        calls, error, times, torn = map(int, numbers)
        print(json.dumps(strike_every_call(name, Call(calls), error, times, torn)))
    else:
        directory, count, tries, *settings = sys.argv[2:]
        if UNSYNCED_LOG in settings:
            os.fdatasync = lambda descriptor: None
            settings.remove(UNSYNCED_LOG)
        database._SETTINGS = (*database._SETTINGS, *settings)
        commit_and_note(Path(directory), int(count), int(tries))
