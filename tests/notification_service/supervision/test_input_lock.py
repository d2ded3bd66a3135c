"""The lock on an input directory that cannot be locked for another reason than another holder."""

import errno
import fcntl
from pathlib import Path

import pytest

from notification_service.supervision.locks import AlreadyRunning, InputLock


def test_one_holds_a_directory_at_a_time(tmp_path: Path) -> None:
    first, second = InputLock(tmp_path), InputLock(tmp_path)
    assert first.acquire() is not None
    with pytest.raises(AlreadyRunning):
        second.acquire()
    first.release()
    assert second.acquire() is not None
    second.release()


def test_a_file_system_that_locks_no_directories_keeps_no_service_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = InputLock(tmp_path)
    assert lock.acquire() is None
    lock.release()


def test_a_directory_that_cannot_be_opened_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert InputLock(tmp_path / "file").acquire() is None
