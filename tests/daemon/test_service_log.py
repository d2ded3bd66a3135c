"""The log of a daemon: the worker's lines as they come, ours as configured, rotated by size."""

import logging
from contextlib import suppress

import pytest

from daemon import service_log
from daemon.sections import LogFormat, Logging
from daemon.service_log import ServiceLog


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    root = logging.getLogger()
    before = root.level, root.handlers[:], logging.raiseExceptions
    yield
    for handler in root.handlers:
        if handler not in before[1]:
            with suppress(OSError):
                handler.close()
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    logging.raiseExceptions = before[2]


def test_the_workers_lines_stay_as_they_are_and_ours_are_formatted(tmp_path):
    log = ServiceLog(tmp_path, Logging(LogFormat.TEXT, "info"))
    log.write(b"2026 INFO a line of the worker with 100 % \xff\n")
    logging.getLogger("resequencer.supervisor").warning("ours")
    lines = (tmp_path / "service.log").read_text().splitlines()
    assert lines[0] == "2026 INFO a line of the worker with 100 % \N{REPLACEMENT CHARACTER}"
    assert lines[1].endswith("WARNING resequencer.supervisor: ours")


def test_a_full_log_is_renamed_and_a_new_one_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(service_log, "_FILE_BYTES", 1_000)
    log = ServiceLog(tmp_path, Logging(LogFormat.TEXT, "info"))
    for number in range(100):
        log.write(b"line %d " % number + b"x" * 90 + b"\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["service.log", *(f"service.log.{n}" for n in range(1, 6))]
    assert all(each.stat().st_size <= 1_000 for each in tmp_path.iterdir())
    assert (tmp_path / "service.log").read_text().splitlines()[-1].startswith("line 99 ")


def test_a_log_without_room_stops_nobody(tmp_path, capfd):
    (tmp_path / "service.log").symlink_to("/dev/full")
    ServiceLog(tmp_path, Logging(LogFormat.TEXT, "info")).write(b"lost\n")
    assert capfd.readouterr().err == ""
