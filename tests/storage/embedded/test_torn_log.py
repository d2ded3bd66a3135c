"""The write-ahead log is cut or overwritten anywhere: the database comes back at the last complete commit, or is refused."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from resequencer.storage_port import Commit, Pending, Snapshot, StashEntry, StorageRefused, UnitChange
from storage.embedded.partition import EmbeddedPartitionStore
from storage.embedded.storage import EmbeddedStorage
from tests.storage.contract import PARTITION, WAITS
from tests.storage.embedded.storages import EmbeddedHarness, memory_directory

pytestmark = pytest.mark.slow

COMMITS = 5
REFUSED = -1
Damage = Callable[[bytes, int], bytes]


class Left(NamedTuple):
    """The files that a killed process leaves; `last` is where the last commit begins in the log."""

    database: bytes
    log: bytes
    last: int


@pytest.fixture(scope="module")
def left() -> Left:
    """The files with all commits only in the log."""
    return leave(lambda storage: None)


@pytest.fixture(scope="module")
def copied() -> Left:
    """The files with all commits also in the database, before the log begins anew."""
    return leave(lambda storage: storage._database._connection.execute("PRAGMA wal_checkpoint(PASSIVE)"))


def leave(finish: Callable[[EmbeddedStorage], object]) -> Left:
    with memory_directory() as directory:
        harness, last = EmbeddedHarness(Path(directory)), 0
        log = harness.file.with_name("state.db-wal")
        storage = harness.make()
        store = storage.open(PARTITION)
        for number in range(1, COMMITS + 1):
            last = log.stat().st_size
            store.commit(commit_of(number))
            store.checkpoint()
        finish(storage)
        left = Left(harness.file.read_bytes(), log.read_bytes(), last)
        harness.close()
        return left


def commit_of(number: int) -> Commit:
    """Return a commit that changes the shared unit and adds a unit of its own."""
    body = b"%d" % number
    changes = tuple(
        UnitChange(unit, body, WAITS, (StashEntry(number, body * 900),), (), body * 900) for unit in ("shared", f"unit-{number}")
    )
    return Commit(number, f"attempt-{number}", number, number, 0, changes, (Pending(number, body),), number - 1)


def check(store: EmbeddedPartitionStore, last: int) -> None:
    """Check that the storage holds all commits up to this one, and nothing of later ones."""
    entries = [StashEntry(number, b"%d" % number * 900) for number in range(1, last + 1)]
    own = [Snapshot(f"unit-{each.offset}", b"%d" % each.offset, each.body, (each,)) for each in entries]
    shared = Snapshot("shared", b"%d" % last, entries[-1].body, tuple(entries)) if entries else None
    loaded = store.load(["shared", *(f"unit-{number}" for number in range(1, COMMITS + 1))])
    assert loaded == {each.unit: each for each in (*own, *([shared] if shared else ()))}, f"not exactly commits 1 to {last}"
    assert list(store.pending()) == ([Pending(last, b"%d" % last)] if last else [])
    assert len(store.waiting()) == len(loaded)


def comes_back_at(left: Left, log: bytes) -> int:
    """Return the last commit that is there, after a check of everything; REFUSED if the storage refuses the file."""
    with memory_directory() as directory:
        harness = EmbeddedHarness(Path(directory))
        harness.file.write_bytes(left.database)
        harness.file.with_name("state.db-wal").write_bytes(log)
        refused = None
        try:
            store = harness.make().open(PARTITION)
            check(store, store.header.next_offset or 0)
            return store.header.next_offset or 0
        except StorageRefused as refusal:
            refused = refusal
        finally:
            harness.close()
        assert refused.what.startswith(str(harness.file))
        assert "restore it from a backup" in refused.problem
        return REFUSED


def cut(log: bytes, at: int) -> bytes:
    return log[:at]


def garble(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 0x55]) + log[at + 1 :]


def zero(log: bytes, at: int) -> bytes:
    """The file has its new length on the disk, but not its data."""
    return log[:at] + bytes(len(log) - at)


@pytest.mark.parametrize("damage", [cut, garble, zero])
def test_a_commit_that_is_torn_anywhere_was_never_made(left: Left, damage: Damage) -> None:
    assert comes_back_at(left, left.log) == COMMITS
    for at in range(left.last, len(left.log), 97):
        assert comes_back_at(left, damage(left.log, at)) == COMMITS - 1, f"at byte {at - left.last} of the last commit"


@pytest.mark.parametrize("damage", [cut, garble])
def test_damage_farther_ahead_takes_whole_commits(left: Left, damage: Damage) -> None:
    found = Counter(comes_back_at(left, damage(left.log, at)) for at in range(0, left.last, 499))
    assert sorted(found) == list(range(COMMITS - 1))


@pytest.mark.parametrize("damage", [cut, garble])
def test_a_log_that_has_lost_what_was_copied_out_of_it_already_is_refused(copied: Left, damage: Damage) -> None:
    """If old pages lay before new ones, the database would be half of each."""
    assert comes_back_at(copied, copied.log) == COMMITS
    found = Counter(comes_back_at(copied, damage(copied.log, at)) for at in range(0, len(copied.log), 499))
    assert sorted(found) == [REFUSED, COMMITS], "what is damaged in its first transaction counts as no log"
    assert found[COMMITS] < found[REFUSED]
