"""The file in which a running service leaves its report."""

import errno
import os

import msgspec
import pytest

from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State, Units, UnitWait, report

IDENTITY = Identity(17, "conf/application.conf", 1_774_740_000_000)


def made(state=State.READY, reason=None):
    return report(IDENTITY, state, reason, 1_774_740_835_941)


def test_what_was_written_last_is_found(tmp_path):
    file = StatusFile(tmp_path)
    assert file.find() is None
    for state in State:
        file.write(made(state, "why"))
        assert file.find() == made(state, "why")
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]


def test_everything_in_a_report_survives_the_file(tmp_path):
    wait = UnitWait("uow-1", "T-0", "sequence:3", "deadline", "2026-03-28T23:33:55.941Z", "2026-03-28T23:34:16.941Z", 2)
    full = msgspec.structs.replace(made(), units=Units(1, 2, 3, 4, 5, 6), oldest_waits=(wait,), counts={"records": 7})
    StatusFile(tmp_path).write(full)
    assert StatusFile(tmp_path).find() == full


DEEP = b'{"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"state": "dancing"}', b"\xff\xfe", b'{"state":"\xff"}', DEEP])
def test_what_cannot_be_read_is_no_report(tmp_path, content):
    (tmp_path / "status.json").write_bytes(content)
    assert StatusFile(tmp_path).find() is None


@pytest.fixture
def full_disk(monkeypatch):
    """A full disk: files cannot grow, but existing content can be overwritten."""

    def has_no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "replace", has_no_room)


def test_on_a_full_disk_the_report_is_written_over_the_last_one(tmp_path, full_disk, caplog):
    file = StatusFile(tmp_path)
    file.write(made(State.STARTING))
    size = (tmp_path / "status.json").stat().st_size
    full_disk()
    for reason in ("state.db: database or disk is full" * 20, "short"):
        file.write(made(State.STORAGE_UNAVAILABLE, reason))
        assert file.find() == made(State.STORAGE_UNAVAILABLE, reason)
    assert (tmp_path / "status.json").stat().st_size == size
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]
    assert not caplog.records


def test_where_that_takes_more_room_too_the_last_report_stays_and_it_is_said_once(tmp_path, full_disk, caplog):
    file = StatusFile(tmp_path)
    file.write(made(State.STARTING))
    full_disk()
    for _ in range(3):
        file.write(made(State.STORAGE_UNAVAILABLE, "x" * 10_000))
    assert file.find() == made(State.STARTING)
    (record,) = caplog.records
    assert "status.json cannot be written" in record.getMessage()


def test_without_any_report_before_a_full_disk_stops_nothing(tmp_path, full_disk):
    full_disk()
    StatusFile(tmp_path).write(made())
    assert StatusFile(tmp_path).find() is None
