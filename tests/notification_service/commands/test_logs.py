"""`logs --json`: one object per line, for each format of the log."""

import json
import logging
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from notification_service.commands.status import show_logs
from notification_service.configuration.sections import LogFormat, Logging
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.service_log import NAME, ServiceLog, formatter_of


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "application.conf"
    file.write_text(f'payment-status-notification.run-directory = "{tmp_path}/run"')
    (tmp_path / "run").mkdir()
    return file


@pytest.mark.parametrize("format_", LogFormat)
def test_a_log_of_either_form_is_reported_as_the_same_objects(
    config: Path, format_: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Logging(level="info", format=format_)
    log, formatter = ServiceLog(config.parent / "run", settings), formatter_of(settings)
    try:
        raise ArithmeticError("a mistake")
    except ArithmeticError:
        failure = sys.exc_info()
    places = {"unit": "12 34", "partition": "T-0", "position": 7}
    for entry in (
        {"msg": "ready", "levelno": logging.INFO, "levelname": "INFO"},
        {"msg": "dead_lettered", "levelno": logging.INFO, "levelname": "INFO", "position": "T-0@12"},
        {"msg": "released 1 [of 2]", "levelname": "WARNING", **places},
        {"msg": "it failed", "levelname": "ERROR", "exc_info": failure},
    ):
        record = logging.makeLogRecord({"name": "resequencer.guardian", "created": 1e9, **entry})
        for line in formatter.format(record).splitlines():
            log.write(line.encode(), slot=1 if entry["msg"] != "it failed" else None)
    log.write(b"a library's own words")
    assert show_logs(Namespace(config=config, overrides=(), lines=50, follow=False, json=True)) is ExitCode.DONE
    ready, dead_lettered, released, failed, foreign = map(json.loads, capsys.readouterr().out.splitlines())
    at = {"at": "2001-09-09T01:46:40.000Z", "logger": "resequencer.guardian"}
    assert ready == at | {"level": "info", "message": "ready", "slot": 1}
    assert dead_lettered == at | {"level": "info", "message": "dead_lettered", "position": "T-0@12", "slot": 1}
    assert released == at | {"level": "warning", "message": "released 1 [of 2]", "slot": 1} | places
    stack = failed.pop("exception")
    assert stack.startswith("Traceback")
    assert stack.endswith("ArithmeticError: a mistake")
    assert "\n  File " in stack
    assert failed == at | {"level": "error", "message": "it failed"}
    assert foreign == {"message": "a library's own words"}


def test_without_json_lines_are_reported_as_they_are(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "run" / NAME).write_text("one\ntwo\nthree\n")
    show_logs(Namespace(config=config, overrides=(), lines=2, follow=False, json=False))
    assert capsys.readouterr().out == "two\nthree\n"
