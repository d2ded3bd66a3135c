"""Files for the service's user alone: made so, narrowed, and never opened beside SQLite."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from errno import ENOSPC
from pathlib import Path

import pytest

from storage.private_file import (
    make_lasting_directory,
    make_private,
    make_private_directory,
    narrow_run_directory,
    replace_durably,
    replace_whole,
)


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_file_and_a_directory_are_for_their_owner_alone(tmp_path: Path) -> None:
    assert rights(make_private(tmp_path / "made")) == 0o600
    assert rights(make_private_directory(tmp_path / "above" / "made")) == 0o700


def test_the_name_of_each_directory_that_is_made_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    for _ in range(2):
        make_lasting_directory(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]


def test_what_is_replaced_durably_is_synced_with_its_content_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = tmp_path / "file", list[tuple[str, object]]()
    file.write_text("old")

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append((path.name, file.read_text() if path.is_dir() else path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    replace_durably(file, b"new", "anna")
    assert seen == [("file.anna", "new"), (tmp_path.name, "new")]
    assert rights(file) == 0o600
    replace_whole(file, b"newer")
    assert (file.read_text(), len(seen)) == ("newer", 2)


@pytest.mark.parametrize("replace", [replace_durably, replace_whole])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_cannot_be_replaced_stays_and_no_draft_does(
    replace: Callable[[Path, bytes], None], call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, call, failing)
    if call == "replace" or replace is replace_durably:
        with pytest.raises(OSError, match="No space left"):
            replace(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_text() == "old"
    else:
        replace(tmp_path / "file", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_is_there_is_narrowed_and_keeps_its_content(tmp_path: Path) -> None:
    file, directory = tmp_path / "file", tmp_path / "directory"
    directory.mkdir()
    for each in (file, tmp_path / "file-wal", tmp_path / "file-shm"):
        each.write_text("content")
    make_private(file)
    make_private_directory(directory)
    assert [rights(tmp_path / each) for each in ("file", "file-wal", "file-shm")] == [0o600] * 3
    assert rights(directory) == 0o700
    assert file.read_text() == "content"


def test_a_start_narrows_what_is_private_and_nothing_else(tmp_path: Path) -> None:
    private = [Path(each) for each in ("delivery.db", "service.log.3", "suspects/T-0@1.json", "groups/payments/values.db-wal")]
    shared = [Path(each) for each in ("out/notifications.jsonl", "groups/payments/completions.jsonl", "in/partition-0.jsonl")]
    for each in (*private, *shared):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).touch(0o644)
    assert list(narrow_run_directory(tmp_path)) == []
    assert {rights(tmp_path / each) for each in private} == {0o600}
    assert {rights(tmp_path / each) for each in shared} == {0o644}
    assert (rights(tmp_path / "suspects"), rights(tmp_path / "out")) == (0o700, 0o777)


WRITER = """
import sqlite3, sys
from pathlib import Path
from storage.private_file import make_private
def connect():
    return sqlite3.connect(make_private(Path(sys.argv[1])), isolation_level=None, timeout=5)
connection = connect()
connection.execute("pragma journal_mode = wal")
connection.execute("pragma wal_autocheckpoint = 0")
connection.execute("create table row (number integer)")
connection.execute("insert into row values (1)")
another = connect()
print("ready", flush=True)
sys.stdin.readline()
connection.execute("insert into row values (2)")
print("written", flush=True)
sys.stdin.readline()
"""


@contextmanager
def writing(file: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds a WAL database open by two connections, and writes to it when it gets a line."""
    arguments = [sys.executable, "-c", WRITER, str(file)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        yield process
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        for each in (process.stdin, process.stdout):
            if each is not None:
                each.close()


def test_another_process_that_ends_does_not_take_the_log_of_one_that_writes(tmp_path: Path) -> None:
    """The writer has a second connection, before which the file was made private again: its locks must be there still."""
    file, log = tmp_path / "rows.db", tmp_path / "rows.db-wal"
    with writing(file) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with closing(sqlite3.connect(make_private(file), timeout=5)) as other:
            assert other.execute("select number from row").fetchall() == [(1,)]
        assert log.stat().st_size > 0, "the last connection deletes the log, and this was not the last one"
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "written\n"
        with closing(sqlite3.connect(file, timeout=5)) as other:
            assert other.execute("select number from row").fetchall() == [(1,), (2,)]
