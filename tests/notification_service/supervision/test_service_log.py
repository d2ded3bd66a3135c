"""The log of a daemon: the workers' lines unchanged, its own lines in the configured format, rotation by size."""

import json
import logging

import pytest

from notification_service.configuration.sections import LogFormat, Logging
from notification_service.supervision import service_log
from notification_service.supervision.service_log import ServiceLog, formatter_of

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


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


def test_a_log_without_room_raises_no_error(tmp_path, capfd):
    (tmp_path / "service.log").symlink_to("/dev/full")
    ServiceLog(tmp_path, Logging(LogFormat.TEXT, "info")).write(b"lost\n")
    assert capfd.readouterr().err == ""


def test_where_there_are_several_each_line_tells_its_slot(tmp_path):
    log = ServiceLog(tmp_path, Logging(LogFormat.TEXT, "info"))
    log.write(b"2026 INFO ready\n", 1)
    log.write(b"  a line of a traceback\n", 0)
    assert (tmp_path / "service.log").read_text() == "2026 INFO ready [slot=1]\n  a line of a traceback [slot=0]\n"


def test_the_slot_is_a_field_of_json_and_what_is_no_json_of_ours_is_left_whole(tmp_path):
    settings = Logging(LogFormat.JSON, "info")
    log = ServiceLog(tmp_path, settings)
    record = logging.makeLogRecord({"msg": "a }", "name": "x", "levelname": "INFO", "unit": "uow-1"})
    log.write(formatter_of(settings).format(record).encode(), 3)
    log.write(b"Fatal Python error", 3)
    first, second = (tmp_path / "service.log").read_text().splitlines()
    fields = json.loads(first)
    assert (fields["slot"], fields["message"], fields["unit"]) == (3, "a }", "uow-1")
    assert second == "Fatal Python error [slot=3]"


def test_in_the_foreground_it_is_stderr(capsys):
    ServiceLog(None, Logging(LogFormat.TEXT, "info")).write(b"a line", 0)
    assert capsys.readouterr().err == "a line [slot=0]\n"
