"""A commit that is interrupted anywhere is stored whole or not at all."""

import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest
from harness.waiting import wait_until

from resequencer.record import Partition
from resequencer.storage_port import PartitionStore, Pending, StashEntry, Storage, StorageUnavailable, UnitChange
from tests.storage.contract import PARTITION, WAITS, put

UNITS = [f"unit-{number}" for number in range(40)]

COMMIT_UNTIL_KILLED = """
import secrets, sys
from resequencer.record import Partition
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from resequencer.storage_port import Commit, Pending, StashEntry, StorageUnavailable, UnitChange, WaitKind, Waits

def until_answered(call, *arguments):
    # Another process may write for long: then the same call again.
    while True:
        try:
            return call(*arguments)
        except StorageUnavailable:
            pass

storage = EmbeddedStorage(EmbeddedSettings(sys.argv[1], 1_000), lambda: secrets.token_hex(8))
store = until_answered(storage.open, Partition("killed", int(sys.argv[2])))
waits = Waits(1, WaitKind.DEADLINE, 1, "sequence:3", "SEQUENCE", 1, 1)
number = 0
while True:
    number += 1
    body = b"%d" % number
    units = [
        UnitChange(f"unit-{each}", body, waits, (StashEntry(number, body * 500),), (number - 1,), body * 500)
        for each in range(200)
    ]
    pending = (Pending(number, body),)
    commit = Commit(number, f"attempt-{number}", number, number, 0, tuple(units), pending, number - 1)
    until_answered(store.commit, commit)
    print(number, flush=True)
"""


def everything(store):
    return store.load(UNITS), store.waiting(), store.pending(), store.header


def states_seen_by_another_process(embedded):
    view = embedded.make_view()
    return {view.find_unit(PARTITION, unit).snapshot.state for unit in UNITS}


@contextmanager
def interrupted_after(connection, steps):
    """The statement that runs after this many steps of SQLite's virtual machine fails; later statements do not."""
    answers = chain([0] * steps, [1], repeat(0))
    connection.set_progress_handler(lambda: next(answers), 1)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 1)


def test_a_checkpoint_interrupted_after_any_step_changes_nothing_and_the_same_again_ends_it(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, *(UnitChange(unit, b"1", WAITS, (StashEntry(1, b"x"),), (), b"data") for unit in UNITS))
    store.checkpoint()
    changes = (UnitChange(unit, b"2", None, (StashEntry(2, b"y"),), (1,), b"new") for unit in UNITS)
    put(store, *changes, added=(Pending(1, b"one"),), highest_number=1)
    committed, interruptions = store.load(UNITS), 0
    for steps in range(1, 100_000, 211):
        try:
            with interrupted_after(storage._database._connection, steps):
                store.checkpoint()
            break
        except StorageUnavailable:
            interruptions += 1
            assert store.load(UNITS) == committed
            assert states_seen_by_another_process(embedded) == {b"2"}
    assert interruptions > 20
    assert (store.header.commit, list(store.waiting()), list(store.pending())) == (2, [], [Pending(1, b"one")])
    assert store.load(UNITS) == committed
    assert states_seen_by_another_process(embedded) == {b"2"}


def test_a_checkpoint_that_cannot_even_be_undone_is_undone_by_opening_the_file_again(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, UnitChange("a", b"1"), UnitChange("b", b"1", WAITS))
    before, tail = storage._database._connection, store._tail
    before.set_authorizer(lambda action, name, *_: sqlite3.SQLITE_DENY if name == "ROLLBACK" else sqlite3.SQLITE_OK)
    tail.pending[1] = None
    with pytest.raises(TypeError):
        store.checkpoint()
    assert storage._database._connection is not before
    del tail.pending[1]
    store.checkpoint()
    assert store.load(["a"])["a"].state == b"1"


@pytest.mark.slow
@pytest.mark.parametrize("answers", [1, 2, 5, 13, 40, 120])
def test_a_process_killed_amid_its_commits_leaves_the_last_one_whole(embedded_on_disk, answers):
    with committing(embedded_on_disk.file, 0) as child:
        last = answered_before_the_kill(child, answers)
    assert_that_the_last_commit_is_whole(embedded_on_disk, 0, last)


@pytest.mark.slow
def test_two_processes_share_a_new_file_and_one_outlives_the_other(embedded_on_disk):
    with committing(embedded_on_disk.file, 0) as first, committing(embedded_on_disk.file, 1) as second:
        last = answered_before_the_kill(first, 20)
        assert_that_the_last_commit_is_whole(embedded_on_disk, 0, last)
        last = answered_before_the_kill(second, 40)
        assert_that_the_last_commit_is_whole(embedded_on_disk, 1, last)


def assert_that_the_last_commit_is_whole(embedded, number: int, last: int) -> None:
    storage = embedded.make()
    store = wait_until(lambda: _opened(storage, Partition("killed", number)), "the file's other user lets us write")
    ((_, stored),) = store.header.history
    # One more commit may be stored than was answered; never one less.
    assert stored in (last, last + 1)
    assert store.header.next_offset == stored
    body = b"%d" % stored
    loaded = store.load([f"unit-{number}" for number in range(200)])
    assert len(loaded) == 200
    for snapshot in loaded.values():
        assert (snapshot.state, snapshot.data) == (body, body * 500)
        assert snapshot.stash == (StashEntry(stored, body * 500),)
    assert len(store.waiting()) == 200
    assert list(store.pending()) == [Pending(stored, body)]


def _opened(storage: Storage, partition: Partition) -> PartitionStore | None:
    try:
        return storage.open(partition)
    except StorageUnavailable:
        return None


@contextmanager
def committing(file: Path, number: int):
    """A child process that commits to this partition until it is killed."""
    command = [sys.executable, "-c", COMMIT_UNTIL_KILLED, str(file), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def answered_before_the_kill(child, answers: int) -> int:
    """Kill the child after at least so many answered commits, and return the last one that it reported."""
    lines = [child.stdout.readline() for _ in range(answers)]
    child.kill()
    lines += child.stdout.readlines()
    return int(lines[-1])
