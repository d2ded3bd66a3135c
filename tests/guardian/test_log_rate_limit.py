"""How often the log repeats a problem."""

import logging

import pytest

from guardian.backoff import LogRateLimit, kind_of
from resequencer.errors import PermanentError

NOW = 1_774_740_835_941


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.WARNING, "resequencer.problems")
    return lambda: [each.getMessage() for each in caplog.records]


def test_the_first_of_a_kind_is_written_whole_and_the_others_are_counted_for_a_minute(logged, caplog):
    problem_log = LogRateLimit()
    error = ValueError("no sheet")
    for number in range(5):
        problem_log.note("ValueError at x", f"number {number}", NOW + number, {"unit": "u"}, error)
        problem_log.tell(NOW + number)
    assert logged() == ["number 0"]
    assert (caplog.records[0].unit, caplog.records[0].exc_info[1]) == ("u", error)
    problem_log.tell(NOW + 60_000)
    assert logged() == ["number 0"]
    problem_log.tell(NOW + 60_001)
    problem_log.tell(NOW + 200_000)
    assert logged()[1:] == ["ValueError at x: 4 more within 60 s; the last: number 4"]


def test_another_kind_is_told_at_once(logged):
    problem_log = LogRateLimit()
    problem_log.note("a", "first a", NOW, {})
    problem_log.note("b", "first b", NOW, {})
    assert logged() == ["first a", "first b"]


def test_kinds_without_end_do_not_write_lines_without_end(logged):
    problem_log = LogRateLimit()
    for number in range(1_000):
        problem_log.note(str(number), f"number {number}", NOW, {})
    assert len(logged()) == 200
    problem_log.tell(NOW + 60_000)
    assert logged()[200:] == ["of other kinds: 800 more within 60 s; the last: number 999"]


def test_a_kind_is_what_was_raised_and_where():
    kinds = set()
    for text in ("one", "another"):
        try:
            raise ValueError(text)
        except ValueError as error:
            wrapped = PermanentError("it failed")
            wrapped.__cause__ = error
            kinds.add(kind_of(wrapped))
    (kind,) = kinds
    assert kind.startswith("ValueError at ")
    assert "tests/guardian/test_log_rate_limit.py:" in kind
