"""The log format: one line per entry, with unit, partition and position if they are known."""

import json
import logging
import sys

import pytest

from notification_service.configuration.sections import LogFormat, Logging
from notification_service.supervision.service_log import JsonFormatter, TextFormatter, configure_logs

TEXT, JSON = TextFormatter(), JsonFormatter()
FORGED = "2026-01-01T00:00:00.000Z INFO    resequencer.daemon: all is well"


def record(message="released", *arguments, level=logging.WARNING, exc_info=None, **places):
    made = logging.LogRecord("resequencer.guardian", level, __file__, 1, message, arguments, exc_info)
    made.__dict__.update(places)
    made.created = 1_774_740_835.941
    return made


def test_a_text_line_has_instant_level_origin_message_and_places():
    line = TEXT.format(record("released %d", 3, unit="uow-1", partition="T-0", position="T-0@17"))
    assert line == (
        "2026-03-28T23:33:55.941Z WARNING resequencer.guardian: released 3 [unit=uow-1 partition=T-0 position=T-0@17]"
    )


def test_no_line_shows_the_password_of_a_url():
    url = "postgresql://host/db?password=hidden"
    try:
        raise ValueError(url)
    except ValueError:
        logged = record("%s is away", url, exc_info=sys.exc_info())
    for each in (TEXT.format(logged), JSON.format(logged)):
        assert "hidden" not in each
        assert each.count("postgresql://host/db?password=***") == 2


def test_a_text_line_without_places_has_no_brackets():
    assert TEXT.format(record()).endswith(": released")


def test_a_json_line_has_the_same():
    assert json.loads(JSON.format(record("released %d", 3, unit="uow-1", position=0))) == {
        "at": "2026-03-28T23:33:55.941Z",
        "level": "warning",
        "logger": "resequencer.guardian",
        "message": "released 3",
        "unit": "uow-1",
        "position": 0,
    }


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_line_end_in_what_came_from_outside_begins_a_line(end):
    for each in (record(f"unit x{end}{FORGED}"), record("unit %s", f"x{end}{FORGED}"), record(unit=f"x{end}{FORGED}")):
        text, as_json = TEXT.format(each), JSON.format(each)
        assert len(text.splitlines()) == 1
        assert text.isprintable()
        assert as_json.count("\n") == 0
        assert json.loads(as_json)["level"] == "warning"
        assert FORGED in json.loads(as_json)["message"] + json.loads(as_json).get("unit", "")


def test_what_steers_a_terminal_or_cannot_be_encoded_is_escaped_and_the_rest_is_left():
    line = TEXT.format(record("a\x1b[2Jb\u202ec\ud800 Zürich 東京", unit="u\x1b]0;x\x07"))
    assert r"a\x1b[2Jb\u202ec\ud800 Zürich 東京 [unit=u\x1b]0;x\x07]" in line
    line.encode()


def test_an_exception_follows_its_line_set_in_so_that_it_forges_none():
    try:
        raise ValueError(f"no\n{FORGED}\x1b[2J")
    except ValueError:
        each = record("it failed", exc_info=sys.exc_info())
    first, *rest = TEXT.format(each).splitlines()
    assert first.endswith(": it failed")
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
    assert "\n" not in JSON.format(each)
    assert json.loads(JSON.format(each))["exception"].startswith("Traceback")


@pytest.fixture
def root():
    """The root logger, which is restored afterwards."""
    logger = logging.getLogger()
    before = logger.handlers[:], logger.level
    yield logger
    for each in logger.handlers[:]:
        logger.removeHandler(each)
    for each in before[0]:
        logger.addHandler(each)
    logger.setLevel(before[1])


@pytest.mark.parametrize("form", [LogFormat.TEXT, LogFormat.JSON])
def test_what_is_less_important_than_the_level_is_not_written(root, capsys, form):
    configure_logs(Logging(form, "warning"))
    logging.getLogger("resequencer.daemon").info("ready")
    logging.getLogger("resequencer.daemon").warning("the output is away")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "the output is away" in err
