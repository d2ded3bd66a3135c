"""The lock that allows one service at a time on a directory."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from notification_service.command_line import main
from notification_service.supervision import locks as run_lock
from notification_service.supervision.locks import NAME, UNKNOWN, AlreadyRunning, DirectoryUnusable, RunLock, find_holder


@pytest.fixture
def lock(tmp_path):
    made = RunLock(tmp_path / "run")
    made.acquire()
    yield made
    made.release()


def test_a_directory_that_is_not_there_is_made_and_held(lock, tmp_path):
    assert find_holder(tmp_path / "run") == str(os.getpid())


def test_a_second_one_is_refused_and_told_who_holds_it(lock, tmp_path):
    with pytest.raises(AlreadyRunning, match=f"process id {os.getpid()};"):
        RunLock(tmp_path / "run").acquire()
    assert find_holder(tmp_path / "run") == str(os.getpid()), "the refused one has not written over the holder's"


def test_what_was_released_is_free_and_the_process_id_left_in_it_means_nothing(lock, tmp_path):
    lock.release()
    lock.release()
    assert (tmp_path / "run" / NAME).read_text() == f"{os.getpid()}\n"
    assert find_holder(tmp_path / "run") is None
    RunLock(tmp_path / "run").acquire()


def test_a_longer_process_id_leaves_nothing_of_itself(tmp_path):
    (tmp_path / NAME).write_text("123456789012345\n")
    RunLock(tmp_path).acquire()
    assert find_holder(tmp_path) == str(os.getpid())


def test_a_directory_that_does_not_exist_has_no_holder_and_asking_creates_nothing(tmp_path):
    assert find_holder(tmp_path / "nowhere") is None
    (tmp_path / "file").touch()
    assert find_holder(tmp_path / "file") is None
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]


def test_asking_leaves_it_free(tmp_path):
    (tmp_path / NAME).touch()
    assert find_holder(tmp_path) is None
    RunLock(tmp_path).acquire()


def test_a_process_that_only_asks_is_not_taken_for_a_service(tmp_path, monkeypatch):
    asking = os.open(tmp_path / NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr(run_lock, "sleep", lambda _: fcntl.flock(asking, fcntl.LOCK_UN))
    RunLock(tmp_path).acquire()
    os.close(asking)
    assert find_holder(tmp_path) == str(os.getpid())


def test_a_full_disk_has_no_room_for_the_process_id_but_the_lock_holds(tmp_path, monkeypatch):
    def has_no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run_lock.os, "pwrite", has_no_room)
    RunLock(tmp_path).acquire()
    assert find_holder(tmp_path) == UNKNOWN
    with pytest.raises(AlreadyRunning, match=UNKNOWN):
        RunLock(tmp_path).acquire()


def test_a_directory_that_cannot_be_used_is_named_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusable, match=r"file: cannot be used: File exists"):
        RunLock(tmp_path / "file").acquire()
    with pytest.raises(DirectoryUnusable, match=r"file/run: cannot be used: Not a directory"):
        RunLock(tmp_path / "file" / "run").acquire()


def test_a_file_is_held_without_the_directory_that_it_lies_in(tmp_path):
    RunLock(tmp_path, "one.db").acquire()
    with pytest.raises(AlreadyRunning, match=rf"one\.db: in use by the service with process id {os.getpid()};"):
        RunLock(tmp_path, "one.db").acquire()
    RunLock(tmp_path, "two.db").acquire()
    assert find_holder(tmp_path) is None
    RunLock(tmp_path).acquire()


def test_stopping_a_holder_that_had_no_room_for_its_id_says_how_to_find_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    directory = Path("run/application")
    lock = RunLock(directory)
    lock.acquire()
    (directory / NAME).write_bytes(b"")
    assert main(["stop"]) == 1
    assert "'fuser run/application/lock' finds it" in capsys.readouterr().err
    lock.release()
