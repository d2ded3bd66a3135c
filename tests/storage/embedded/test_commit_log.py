"""The commit log: torn, damaged, of another database, with two owners, and with a checkpoint that stops anywhere."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Commit, Pending, StashEntry, StorageRefused, StorageUnavailable, UnitChange
from storage.embedded import commit_log, partition, storage
from storage.embedded.commit_log import CommitLog, framed
from storage.embedded.partition import EmbeddedPartitionStore
from tests.storage.contract import OTHER, PARTITION, WAITS, following, idle, put, waiting
from tests.storage.embedded.storages import EmbeddedHarness, memory_directory
from tests.storage.embedded.test_torn_log import COMMITS, REFUSED, check, commit_of, cut, garble, zero

Damage = Callable[[bytes, int], bytes]


class Left(NamedTuple):
    """The files that a killed process leaves; `last` is where the last commit begins in the log, `first` where the first does."""

    files: dict[str, bytes]
    log: bytes
    first: int
    last: int


@pytest.fixture(scope="module")
def left() -> Left:
    """The files with all commits in the log alone."""
    with memory_directory() as directory:
        harness = EmbeddedHarness(Path(directory))
        store = harness.make().open(PARTITION)
        first = last = store._log.end
        for number in range(1, COMMITS + 1):
            last = store._log.end
            store.commit(commit_of(number))
        files = harness.dump()
        harness.close()
        return Left({name: each for name, each in files.items() if "-log-" not in name}, files["state.db-log-1"], first, last)


def comes_back_at(left: Left, log: bytes) -> int:
    """Return the last commit that is there, after a check of everything; REFUSED if the storage refuses the log."""
    with restored(left, log) as harness:
        refused = None
        try:
            store = harness.make().open(PARTITION)
        except StorageRefused as refusal:
            refused = refusal
        if refused is not None:
            assert refused.what == f"{harness.file}-log-1"
            assert "restore it from a backup" in refused.problem
            return REFUSED
        number = store.header.next_offset or 0
        check(store, number)
        harness.close()
        again = harness.make().open(PARTITION)
        check(again, number)
        return number


@contextmanager
def restored(left: Left, log: bytes) -> Iterator[EmbeddedHarness]:
    with memory_directory() as directory:
        harness = EmbeddedHarness(Path(directory))
        harness.tokens = count(100)
        for name, content in {**left.files, "state.db-log-1": log}.items():
            harness.file.with_name(name).write_bytes(content)
        yield harness
        harness.close()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut, garble, zero])
def test_a_commit_that_is_torn_anywhere_was_never_made(left: Left, damage: Damage) -> None:
    assert comes_back_at(left, left.log) == COMMITS
    for at in range(left.last, len(left.log), 97):
        assert comes_back_at(left, damage(left.log, at)) == COMMITS - 1, f"at byte {at - left.last} of the last commit"


@pytest.mark.slow
def test_a_log_that_was_cut_has_whole_commits(left: Left) -> None:
    found = Counter(comes_back_at(left, cut(left.log, at)) for at in range(0, left.last, 499))
    assert sorted(found) == list(range(COMMITS - 1))


@pytest.mark.slow
def test_damage_before_a_whole_commit_is_refused(left: Left) -> None:
    """That commit was answered, and so was the one before it. At the very beginning, nothing tells whose the log is."""
    found = Counter(comes_back_at(left, garble(left.log, at)) for at in range(left.first, left.last, 499))
    assert sorted(found) == [REFUSED]
    assert comes_back_at(left, garble(left.log, 0)) in (REFUSED, 0)


def test_a_log_of_an_earlier_or_a_later_database_is_refused(embedded):
    store = embedded.make().open(PARTITION)
    put(store, idle("a"))
    store.checkpoint()
    early = embedded.dump()
    put(store, idle("b"))
    store.checkpoint()
    put(store, idle("c"))
    late = embedded.dump()
    embedded.close()
    for each in embedded.file.parent.iterdir():
        each.unlink()
    for name, content in {**early, "state.db-log-1": late["state.db-log-1"]}.items():
        embedded.file.with_name(name).write_bytes(content)
    with pytest.raises(StorageRefused, match=r"state\.db-log-1: it has commit token-0/3, and its database ends at token-0/1"):
        embedded.make().open(PARTITION)
    with pytest.raises(StorageRefused, match="they do not belong together"):
        embedded.make_view().find_header(PARTITION)


def test_a_log_without_its_database_is_refused(embedded):
    embedded.file.with_name("state.db-log-1").write_bytes(framed("token"))
    with pytest.raises(StorageRefused, match=r"the database is missing but its log state\.db-log-1 exists"):
        embedded.make().open(PARTITION)


def test_the_log_of_a_database_is_found_whatever_its_name(tmp_path):
    for name in ("state[1].db", "a*b.db"):
        (tmp_path / name).touch()
        log = commit_log.log_of(tmp_path / name, 7)
        log.touch()
        assert commit_log.logs_of(tmp_path / name) == [log]


def test_who_may_read_the_database_may_read_its_log(embedded):
    process = embedded.make()
    process.connect()
    embedded.file.chmod(0o640)
    put(process.open(PARTITION), waiting("a"))
    assert embedded.file.with_name("state.db-log-1").stat().st_mode & 0o777 == 0o640


def test_a_log_that_the_database_has_already_is_skipped(embedded):
    """The process died between the checkpoint and the end of the log."""
    store = embedded.make().open(PARTITION)
    put(store, waiting("a"))
    with patch.object(CommitLog, "forget_all", side_effect=StorageUnavailable("killed")), suppress(StorageUnavailable):
        store.checkpoint()
    assert embedded.make_view().find_header(PARTITION).commit == 1
    again = embedded.make().open(PARTITION)
    assert again.load(["a"]).keys() == {"a"}
    assert again.header.history == (("token-0", 1),)


def test_an_owner_that_died_after_its_token_was_stored_leaves_a_log_that_is_skipped(embedded):
    put(embedded.make().open(PARTITION), waiting("a"))
    with patch.object(CommitLog, "begin", side_effect=StorageUnavailable("killed")), suppress(StorageUnavailable):
        embedded.make().open(PARTITION)
    third = embedded.make().open(PARTITION)
    assert third.header.history == (("token-0", 1), ("token-1", 0))
    assert third.load(["a"]).keys() == {"a"}
    put(third, idle("a"))


def test_an_owner_that_announced_itself_and_died_keeps_the_one_before_out(embedded):
    """The one before must not commit any more: the next one may have read the log already."""
    first = embedded.make().open(PARTITION)
    put(first, waiting("a"))
    with patch.object(partition, "_take", side_effect=StorageUnavailable("killed")), suppress(StorageUnavailable):
        embedded.make().open(PARTITION)
    for act in (lambda: put(first, waiting("b")), first.checkpoint, lambda: first.load(["a"]), lambda: first.expire(0, ())):
        with pytest.raises(OwnershipLost):
            act()
    third = embedded.make().open(PARTITION)
    assert third.load(["a", "b"]).keys() == {"a"}
    assert third.header.history == (("token-0", 1),)


def test_a_zombie_adds_nothing_to_the_log_of_the_next_and_takes_nothing_from_it(embedded):
    """The logs of both are equally long."""
    first = embedded.make().open(PARTITION)
    put(first, waiting("a"))
    second = embedded.make().open(PARTITION)
    put(second, waiting("b"))
    for act in (first.checkpoint, lambda: put(first, waiting("c"))):
        with pytest.raises(OwnershipLost):
            act()
    assert embedded.make().open(PARTITION).load(["a", "b"]).keys() == {"a", "b"}


@pytest.mark.parametrize("torn", [1, 20, 60])
def test_what_a_failed_write_left_behind_is_written_over_by_the_same_commit_and_by_the_next_owner(embedded, torn):
    write = os.pwrite

    def fail(descriptor: int, data: bytes, offset: int) -> int:
        write(descriptor, data[:torn], offset)
        raise OSError(28, "No space left on device")

    store = embedded.make().open(PARTITION)
    put(store, waiting("a"))
    commit = following(store, waiting("b"))
    with patch.object(os, "pwrite", fail), pytest.raises(StorageUnavailable, match="No space left"):
        store.commit(commit)
    assert embedded.make_view().find_header(PARTITION).commit == 1
    store.commit(commit)
    with patch.object(os, "pwrite", fail), suppress(StorageUnavailable):
        put(store, idle("c"))
    second = embedded.make().open(PARTITION)
    assert second.load(["a", "b", "c"]).keys() == {"a", "b"}


def test_a_commit_that_the_next_owner_has_read_is_not_made_again_over_its_announcement(embedded):
    """The first owner's write was whole, and its sync failed; the next one died after the database had its token."""
    first = embedded.make().open(PARTITION)
    put(first, waiting("a"))
    commit = following(first, waiting("b"))
    with patch.object(os, "fdatasync", side_effect=OSError(5, "Input/output error")), pytest.raises(StorageUnavailable):
        first.commit(commit)
    with patch.object(CommitLog, "begin", side_effect=StorageUnavailable("killed")), suppress(StorageUnavailable):
        embedded.make().open(PARTITION)
    with pytest.raises(OwnershipLost):
        first.commit(commit)
    assert embedded.make().open(PARTITION).load(["a", "b"]).keys() == {"a", "b"}


def test_old_records_that_come_back_behind_a_torn_one_are_no_damage(embedded):
    """A power cut took a part of the first record after a checkpoint, and the end of the file is that of before."""
    store = embedded.make().open(PARTITION)
    for number in range(20):
        put(store, waiting(f"unit-{number}"))
    before = store._log.file.read_bytes()
    store.checkpoint()
    put(store, waiting("torn"))
    after = store._log.file.read_bytes()
    embedded.file.with_name("state.db-log-1").write_bytes(after[:-5] + before[len(after) - 5 :])
    loaded = embedded.make().open(PARTITION).load(["torn", *(f"unit-{number}" for number in range(20))])
    assert loaded.keys() == {f"unit-{number}" for number in range(20)}


def test_the_name_of_the_log_is_durable_before_a_commit_is_answered_though_its_maker_died(embedded, monkeypatch):
    synced = list[Path]()
    monkeypatch.setattr(commit_log, "sync_directory", synced.append)
    with patch.object(CommitLog, "begin", side_effect=StorageUnavailable("killed")), suppress(StorageUnavailable):
        embedded.make().open(PARTITION)
    assert synced == []
    embedded.make().open(PARTITION)
    assert synced == [embedded.file.parent]


def test_a_whole_record_of_another_form_is_refused_and_not_forgotten(embedded):
    store = embedded.make().open(PARTITION)
    put(store, UnitChange("a", b"s", replace(WAITS, wakes_at=1.5)))
    for look in (lambda: embedded.make().open(PARTITION), lambda: embedded.make_view().find_header(PARTITION)):
        with pytest.raises(StorageRefused, match=r"state\.db-log-1: it contains data that the service never writes"):
            look()


def test_what_changed_is_noted_once_though_the_end_of_a_checkpoint_failed(embedded):
    store = embedded.make().open(PARTITION)
    put(store, waiting("first"))
    view = embedded.make_view()
    marker = view.find_waiting(PARTITION, None).marker
    for number in range(3):
        put(store, waiting(f"unit-{number}"))
    with patch.object(CommitLog, "forget_all", side_effect=StorageUnavailable("full")), suppress(StorageUnavailable):
        store.checkpoint()
    put(store, waiting("last"))
    store.checkpoint()
    changes = view.find_waiting(PARTITION, marker)
    listed = {unit for portion in changes.portions for unit, _ in portion}
    assert (changes.is_whole, listed) == (False, {"unit-0", "unit-1", "unit-2", "last"})


def test_a_checkpoint_that_failed_is_tried_again_after_as_many_commits(embedded, monkeypatch):
    monkeypatch.setattr(partition, "_COMMITS", 5)
    store = embedded.make().open(PARTITION)
    with patch.object(partition, "_store", side_effect=StorageUnavailable("full")) as tried:
        for number in range(23):
            put(store, idle(f"unit-{number}"))
    assert tried.call_count == 4


@pytest.mark.parametrize("move", [Path.unlink, lambda log: log.rename(log.with_name("moved"))])
def test_a_log_that_is_not_in_its_place_loses_its_owner_the_partition(embedded, move):
    store = embedded.make().open(PARTITION)
    put(store, waiting("a"))
    move(embedded.file.with_name("state.db-log-1"))
    with pytest.raises(OwnershipLost):
        put(store, waiting("b"))
    assert not embedded.file.with_name("state.db-log-1").exists()


def test_all_partitions_end_though_one_fails(embedded):
    process = embedded.make()
    put(process.open(PARTITION), waiting("a"))
    put(process.open(OTHER), waiting("b"))
    with patch.object(partition, "_store", side_effect=[RuntimeError("a mistake of ours"), None]), pytest.raises(RuntimeError):
        process.close()
    assert process._database._connection is None


def test_a_record_of_a_customer_that_looks_like_one_of_the_log_is_no_damage(embedded):
    store = embedded.make().open(PARTITION)
    put(store, idle("a"))
    forged = framed("guessed", Commit(7, "attempt", 1, 1))
    record = framed(store.header.token, following(store, UnitChange("b", b"s", WAITS, (StashEntry(1, forged),))))
    log = embedded.file.with_name("state.db-log-1")
    log.write_bytes(log.read_bytes() + record[:-3])
    assert embedded.make().open(PARTITION).load(["a", "b"]).keys() == {"a"}


def test_a_checkpoint_that_fails_fails_no_commit_up_to_the_bound_of_the_log(embedded, monkeypatch):
    monkeypatch.setattr(partition, "_COMMITS", 2)
    monkeypatch.setattr(partition, "LARGEST_BYTES", 3_000)
    store = embedded.make().open(PARTITION)
    with patch.object(partition, "_store", side_effect=StorageUnavailable("the database cannot be written")):
        while store._log.end <= 3_000:
            put(store, UnitChange(f"unit-{store.header.commit}", b"x" * 100))
        with pytest.raises(StorageUnavailable, match="cannot be written"):
            put(store, idle("beyond"))
    made = store.header.commit
    assert made > 10
    assert len(store.load([f"unit-{number}" for number in range(made)])) == made
    put(store, idle("beyond"))
    assert (rows(store), store.load(["beyond"]).keys()) == (made, {"beyond"})


def test_the_database_takes_the_log_over_after_some_commits_and_some_bytes(embedded, monkeypatch):
    process = embedded.make()
    store, other = process.open(PARTITION), process.open(OTHER)
    for number in range(partition._COMMITS + 1):
        put(store, idle(f"unit-{number}"))
    assert rows(store) == partition._COMMITS
    monkeypatch.setattr(storage, "_LOGS_BYTES", 2_000)
    for number in range(20):
        put(other, UnitChange(f"unit-{number}", b"x" * 100))
        assert other._log.end < 1_300, "half of what all logs of the process may have"
    assert rows(other) > 10


def test_an_entry_that_came_and_went_between_two_checkpoints_is_never_a_row(embedded):
    store = embedded.make().open(PARTITION)
    put(store, UnitChange("a", b"1", WAITS, (StashEntry(1, b"x"),)), added=(Pending(1, b"one"),), highest_number=1)
    put(store, UnitChange("a", b"2", None, (), (1,), b"data"), published=1)
    with patch.object(partition, "_change_units", wraps=partition._change_units) as changed:
        store.checkpoint()
    (_, _, tail), _ = changed.call_args
    assert (tail.units["a"].added, tail.pending) == ({}, {})
    loaded = store.load(["a"])["a"]
    assert (loaded.state, loaded.data, loaded.stash) == (b"2", b"data", ())


def test_only_bytes_that_were_committed_reach_the_database(embedded):
    """What was decided and not committed is not there after the takeover, whatever the process did with it."""
    store = embedded.make().open(PARTITION)
    put(store, waiting("a"))
    with patch.object(store._log, "append", side_effect=OwnershipLost("zombie")), pytest.raises(OwnershipLost):
        put(store, UnitChange("a", b"never", None))
    store.checkpoint()
    assert store.load(["a"])["a"].state == b"state of a"
    assert dict(store.waiting()) == {"a": WAITS}


def test_a_clean_stop_leaves_the_database_alone(embedded):
    process = embedded.make()
    put(process.open(PARTITION), waiting("a"))
    process.close()
    assert [each.name for each in embedded.file.parent.iterdir()] == ["state.db"]
    assert embedded.make().open(PARTITION).load(["a"]).keys() == {"a"}


def rows(store: EmbeddedPartitionStore) -> int:
    with store._database.reading() as connection:
        (count,) = connection.execute("SELECT count(*) FROM units WHERE partition = ?", (store._key,)).fetchone()
        return int(count)
