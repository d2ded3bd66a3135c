"""A run of an embedded storage on a faulty disk; a program, for the disk lies under its process.

struck_program.py strike NAME CALLS ERRNO TIMES TORN     a run for each such call, struck there; prints what came of them as JSON
struck_program.py commit DIRECTORY FIRST LAST            these commits, and in the file `answered` how many were answered
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from harness.disk.faulty_disk import Call, FaultyDisk

from domain.record import Partition
from storage.embedded import database, write_ahead_log
from storage.embedded.partition import EmbeddedPartitionStore
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.port import (
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

Answer = TypeVar("Answer")
PARTITION = Partition("T", 0)
UNITS = [f"unit-{number}" for number in range(8)]
COMMITS = 6
_LONGEST_WAIT = 20


class SimulatedRun:
    """Opens, commits, expires, closes. What is unavailable is asked for again; after a refusal it is begun again, once."""

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
    """Replaces everything that the one before stored."""
    body, waits = b"%d" % number, Waits(1, WaitKind.DEADLINE, 1, "sequence:3", "SEQUENCE", 1, 1)
    changes = tuple(UnitChange(unit, body, waits, (StashEntry(number, body * 400),), (number - 1,), body * 400) for unit in UNITS)
    return Commit(commit_number, f"attempt-{number}", number, number, 0, changes, (Pending(number, body),), number - 1)


def check(loaded: Mapping[str, Snapshot], number: int) -> None:
    """All of the commit of this number, and nothing of another."""
    body = b"%d" % number
    whole = {unit: Snapshot(unit, body, body * 400, (StashEntry(number, body * 400),)) for unit in UNITS}
    assert loaded == whole, f"not all of commit {number}"


def check_store(store: EmbeddedPartitionStore, number: int) -> None:
    """As `check`, of everything that a partition has."""
    check(store.load(UNITS), number)
    assert store.header.next_offset == store.header.highest_number == number
    assert list(store.pending()) == [Pending(number, b"%d" % number)]
    assert len(store.waiting()) == len(UNITS)


def strike_every_call(name: str, calls: Call, error: int, times: int, torn: int) -> dict[str, object]:
    """A run for each call, until one runs on unstruck."""
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
    """What is wrong with what another process finds afterwards."""
    try:
        storage = run.make()
        check_store(storage.open(PARTITION), COMMITS)
        storage.close()
    except Exception as problem:
        return [f"afterwards: {type(problem).__name__}: {problem}"]
    names = {each.name for each in run.file.parent.iterdir()}
    return [f"left beside it: {names}"] if names != {"state.db"} else []


def commit_and_note(directory: Path, count: int, tries: int) -> None:
    """So many more commits. When one fails so often, the process dies at once, without letting go of anything."""
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
    # A checkpoint every second commit or so, and one after them: what it asks of the disk is struck like all else.
    write_ahead_log.LARGEST_BYTES = 0
    if sys.argv[1] == "strike":
        name, *numbers = sys.argv[2:]
        database._SETTINGS = (*database._SETTINGS, "PRAGMA wal_autocheckpoint = 30")
        calls, error, times, torn = map(int, numbers)
        print(json.dumps(strike_every_call(name, Call(calls), error, times, torn)))
    else:
        directory, count, tries, *settings = sys.argv[2:]
        database._SETTINGS = (*database._SETTINGS, *settings)
        commit_and_note(Path(directory), int(count), int(tries))
