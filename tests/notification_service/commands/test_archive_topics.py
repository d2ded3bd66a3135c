"""The messages of `archive-topics --continuous` while something is unavailable."""

from typing import Any

import pytest

from guardian.ports import TransportUnavailable
from notification_service.commands.archive_topics import _go_on, _report
from notification_service.supervision.stop_signal import StopSignal


class Failing:
    """Archives so many records in each run before the brokers become unavailable. The last run also sets the stop signal."""

    def __init__(self, stop: "Waitless", *records: int) -> None:
        self.records = 0
        self._stop = stop
        self._left = list(records)

    def run(self, *_: Any, is_continuous: bool) -> None:
        assert is_continuous
        self.records += self._left.pop(0)
        if not self._left:
            self._stop.is_over = True
        raise TransportUnavailable("the brokers: no answer")


class Done:
    records = 3

    def __init__(self) -> None:
        self.ends = {"in": {0: 3}}


class Waitless(StopSignal):
    is_over = False

    @property
    def is_set(self) -> bool:
        return self.is_over

    def wait(self, milliseconds: int) -> None:
        """Return at once: no test has to wait."""


def test_brokers_that_are_away_are_reported_once_and_again_once_they_were_back(capsys: pytest.CaptureFixture[str]) -> None:
    stop = Waitless()
    _go_on(Failing(stop, 0, 0, 0), stop)
    assert capsys.readouterr().out == "waiting: the brokers: no answer\n"
    stop = Waitless()
    _go_on(Failing(stop, 0, 0, 7, 0), stop)
    assert capsys.readouterr().out == 2 * "waiting: the brokers: no answer\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_the_password_of_the_archives_url_is_not_said(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
    _report(Done(), "hdfs://archivist:geheim@host/records", as_json=as_json)
    output = capsys.readouterr().out
    assert "hdfs://archivist:***@host/records" in output
    assert "geheim" not in output
