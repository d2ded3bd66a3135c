"""The file of the embedded storage: how it is made, and which files are refused instead of overwritten."""

import os
import sqlite3
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from resequencer.storage_port import Pending, StorageRefused, StorageUnavailable, UnitChange
from storage.embedded.database import FORMAT_VERSION, create
from storage.embedded.write_ahead_log import log_of
from tests.storage.contract import OTHER, PARTITION, WAITS, expire_all, following, idle, put, waiting

UNPRIVILEGED = 65_534


def filled(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, *(UnitChange(f"unit-{number}", b"s" * 500, data=b"d" * 3_000) for number in range(300)))
    storage.close()
    return embedded.file


def refusal(embedded):
    with pytest.raises(StorageRefused) as refused:
        embedded.make().open(PARTITION)
    assert refused.value.what == str(embedded.file)
    return refused.value.problem


def digest(file: Path) -> bytes:
    return sha256(file.read_bytes()).digest()


def execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement).fetchall()


def test_a_missing_file_is_created_for_its_owners_eyes_only_and_nothing_is_left_beside_it(embedded):
    storage = embedded.make()
    assert not embedded.file.exists()
    storage.open(PARTITION)
    for file in embedded.file.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    storage.close()
    assert [file.name for file in embedded.file.parent.iterdir()] == ["state.db"]


def test_a_file_that_another_process_creates_meanwhile_stays(embedded):
    before = digest(filled(embedded))
    create(embedded.file)
    assert digest(embedded.file) == before
    assert len(list(embedded.file.parent.iterdir())) == 1


def test_a_file_that_another_process_creates_and_writes_meanwhile_stays(embedded):
    """That process has its log beside the file before this one has looked for a log."""
    embedded.make().open(PARTITION)
    assert log_of(embedded.file).exists()
    create(embedded.file)


def test_a_commit_is_synced_to_the_disk_before_it_is_answered(embedded):
    storage = embedded.make()
    storage.open(PARTITION)
    (synchronous,) = storage._database._connection.execute("PRAGMA synchronous").fetchone()
    (mode,) = storage._database._connection.execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, mode) == (2, "wal")


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(FORMAT_VERSION + 1, "start the newer version"), (FORMAT_VERSION - 2, "restore it"), (0, "restore it")],
)
def test_a_file_of_another_format_is_refused_and_left_as_it_is(embedded, version, remedy):
    execute(filled(embedded), f"PRAGMA user_version = {version}")
    before = digest(embedded.file)
    problem = refusal(embedded)
    assert f"its format is {version}, " in problem
    assert remedy in problem
    assert digest(embedded.file) == before


def test_a_file_of_the_format_before_is_opened_and_is_then_of_this_one(embedded):
    filled(embedded)
    make_it_older(embedded.file)
    assert embedded.make_view().find_header(PARTITION).commit == 1
    storage = embedded.make()
    assert len(storage.open(PARTITION).load([f"unit-{number}" for number in range(300)])) == 300
    assert storage._database._connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)


def make_it_older(file: Path) -> None:
    execute(file, "ALTER TABLE partitions RENAME COLUMN last_attempt TO attempt")
    execute(file, f"PRAGMA user_version = {FORMAT_VERSION - 1}")


def test_a_look_at_a_file_of_the_format_before_leaves_its_format(embedded):
    """Until something is committed, the older version can be started again."""
    filled(embedded)
    make_it_older(embedded.file)
    storage = embedded.make()
    storage.connect()
    storage.close()
    with closing(sqlite3.connect(embedded.file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION - 1,)


def test_an_older_version_that_has_the_file_open_fails_once_it_has_this_format(embedded):
    """It would not see the log."""
    filled(embedded)
    make_it_older(embedded.file)
    with closing(sqlite3.connect(embedded.file, isolation_level=None)) as older:
        asked = "SELECT token, commit_number, attempt FROM partitions WHERE id = ?"
        assert older.execute(asked, (1,)).fetchone()[1] == 1
        embedded.make().open(PARTITION)
        with pytest.raises(sqlite3.OperationalError, match="no such column: attempt"):
            older.execute(asked, (1,))


def test_another_programs_database_is_refused_and_left_as_it_is(embedded):
    execute(embedded.file, "CREATE TABLE theirs (value)")
    before = digest(embedded.file)
    assert "another program's" in refusal(embedded)
    assert digest(embedded.file) == before


@pytest.mark.parametrize("content", [b"x", b"garbage " * 1_000, b"\x00" * 10_000, b"SQLite format 3\x00" + b"\xff" * 5_000])
def test_a_file_of_garbage_is_refused_and_left_as_it_is(embedded, content):
    embedded.file.write_bytes(content)
    assert refusal(embedded)
    assert embedded.file.read_bytes() == content


def test_a_file_that_was_cut_to_nothing_is_refused(embedded):
    os.truncate(filled(embedded), 0)
    assert "it was truncated" in refusal(embedded)
    assert embedded.file.stat().st_size == 0


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_anywhere_is_refused(embedded, share):
    size = filled(embedded).stat().st_size
    os.truncate(embedded.file, int(size * share))
    assert "restore it" in refusal(embedded)


def test_a_page_that_was_overwritten_is_refused_when_it_is_read(embedded):
    with filled(embedded).open("r+b") as file:
        # All pages but the first, which holds the schema.
        file.seek(4_096)
        file.write(b"\xa5" * (embedded.file.stat().st_size - 4_096))
    assert "restore it" in refusal(embedded)


def test_a_log_without_its_database_is_refused(embedded):
    embedded.file.with_name("state.db-wal").write_bytes(b"what was committed last")
    assert "state.db-wal" in refusal(embedded)
    assert not embedded.file.exists()


def test_a_missing_directory_is_refused_rather_than_made(embedded):
    embedded.file = embedded.file.parent / "not-mounted" / "state.db"
    assert "directory does not exist" in refusal(embedded)


def test_a_directory_in_the_place_of_the_file_is_refused(embedded):
    embedded.file.mkdir()
    assert "not a file" in refusal(embedded)


@contextmanager
def without_roots_rights(directory: Path):
    """Drop root's rights within the context, because root may do everything.

    The directory and its files then belong to the user without rights (id `UNPRIVILEGED`) that the process becomes.
    """
    if os.geteuid() != 0:
        yield
        return
    for each in (directory, *directory.iterdir()):
        os.chown(each, UNPRIVILEGED, -1)
    os.setresuid(UNPRIVILEGED, UNPRIVILEGED, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_a_file_that_may_not_be_written_is_refused(embedded):
    filled(embedded).chmod(0o400)
    with without_roots_rights(embedded.file.parent):
        assert "right to read and write" in refusal(embedded)


def test_a_full_disk_is_unavailable_and_goes_on_once_there_is_room(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, waiting("a"))
    connection = storage._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    commit = following(store, idle("a"), UnitChange("b", b"x" * 200_000), added=(Pending(1, b"one"),), highest_number=1)
    store.commit(commit)
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match=r"state\.db.*full"):
            store.checkpoint()
        assert store.load(["a", "b"]).keys() == {"a", "b"}
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.waiting() == []
    assert store.load(["a", "b"]).keys() == {"a", "b"}


@pytest.mark.slow
def test_a_file_that_another_process_is_writing_for_long_is_unavailable(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    with embedded.make()._database.writing():
        put(store, idle("a"))
        with pytest.raises(StorageUnavailable, match="locked"):
            store.checkpoint()
        with pytest.raises(StorageUnavailable, match="locked"):
            embedded.make().open(OTHER)
        # Readers and commits do not wait for a writer.
        assert store.load(["a"]).keys() == {"a"}
    store.checkpoint()


def test_a_mistake_in_a_statement_is_neither_the_disk_s_nor_the_file_s_fault(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, UnitChange("a", b"s", replace(WAITS, waits_for=[])))
    with pytest.raises(sqlite3.Error):
        store.checkpoint()
    put(store, idle("a"))
    store.checkpoint()


def test_what_expired_makes_room_and_the_file_shrinks(embedded):
    filled(embedded)
    before = embedded.file.stat().st_size
    storage = embedded.make()
    expire_all(storage.open(PARTITION), 10**6)
    storage.close()
    assert embedded.file.stat().st_size < before / 2


@pytest.mark.slow
def test_the_log_is_cut_back_after_an_outsize_commit(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    log = embedded.file.with_name("state.db-wal")
    put(store, UnitChange("a", b"x" * (80 * 2**20)))
    store.checkpoint()
    assert log.stat().st_size > 80 * 2**20
    for number in range(3):
        put(store, idle(f"unit-{number}"))
        store.checkpoint()
    assert log.stat().st_size <= 64 * 2**20
