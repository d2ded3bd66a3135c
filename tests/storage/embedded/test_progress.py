"""What a reader without ownership sees of a partition, and that it leaves no trace."""

import pytest

from resequencer.record import Partition
from resequencer.storage_port import Pending, StashEntry, StorageRefused, UnitChange
from storage.embedded.progress import Progress, find_progress
from tests.storage.contract import PARTITION, WAITS, idle, put


def stash(unit, *offsets):
    return UnitChange(unit, b"s", WAITS, tuple(StashEntry(offset, b"x") for offset in offsets))


def test_nothing_is_known_before_the_first_commit_and_nothing_is_made(embedded):
    assert find_progress(embedded.file, PARTITION) is None
    assert not embedded.file.exists()
    embedded.make().open(PARTITION)
    assert find_progress(embedded.file, PARTITION) is None


def test_it_tells_what_the_last_commit_left_of_this_partition_alone(embedded):
    storage = embedded.make()
    store, other = storage.open(PARTITION), storage.open(Partition("IPF_PROCESSING_DATA", 1))
    put(store, stash("a", 700, 300), stash("b", 500), added=(Pending(1, b"one"), Pending(2, b"two")), highest_number=2)
    put(other, stash("a", 5))
    assert find_progress(embedded.file, PARTITION) == Progress(store.header.next_offset, 2, 300)
    put(store, UnitChange("a", b"s", None, (), (300, 700)), highest_number=2)
    assert find_progress(embedded.file, PARTITION) == Progress(store.header.next_offset, 2, 500)
    put(store, UnitChange("b", b"s", None, (), (500,)), highest_number=2)
    assert find_progress(embedded.file, PARTITION) == Progress(store.header.next_offset, 2, None)
    assert find_progress(embedded.file, Partition("OTHER", 0)) is None


def test_the_owner_goes_on_as_if_the_file_had_not_been_looked_at(embedded):
    store = embedded.make().open(PARTITION)
    put(store, idle("a"))
    find_progress(embedded.file, PARTITION)
    put(store, idle("b"))
    assert set(store.load(["a", "b"])) == {"a", "b"}


def test_what_a_service_that_died_left_in_its_log_stays_there(embedded, tmp_path):
    put(embedded.make().open(PARTITION), idle("a"))
    copy = tmp_path / "copy" / "state.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal", "-log-1"):
        copy.with_name(copy.name + suffix).write_bytes(embedded.file.with_name(embedded.file.name + suffix).read_bytes())
    before = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    assert find_progress(copy, PARTITION) is not None
    assert {each.name: each.read_bytes() for each in copy.parent.iterdir() if not each.name.endswith("-shm")} == before
    assert before["state.db-log-1"]


@pytest.mark.parametrize("damage", [b"", b"no database", b"\x00" * 4_096])
def test_a_damaged_database_is_refused(embedded, damage):
    embedded.file.write_bytes(damage)
    with pytest.raises(StorageRefused, match=r"state.db"):
        find_progress(embedded.file, PARTITION)
