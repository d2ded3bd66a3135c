"""How the supervisor keeps a process beside the workers: whatever happens to it, the supervisor goes on."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
from harness.waiting import wait_until

from notification_service.configuration.sections import LogFormat, Logging
from notification_service.status.service_report import console_file
from notification_service.supervision.service_log import ServiceLog
from notification_service.supervision.side_process import SideProcess


def console_of(directory: Path, *command: str) -> SideProcess:
    return SideProcess("the console", command, ServiceLog(directory, Logging(LogFormat.TEXT, "info")), console_file(directory))


def problem_in(directory: Path) -> str | None:
    served = console_file(directory).find(os.getpid())
    return None if served is None else served.problem


def test_a_console_that_cannot_be_started_is_noted_and_tried_again_later(tmp_path: Path) -> None:
    console = console_of(tmp_path, "/nonexistent")
    console.start_if_due()
    descriptors = set(os.listdir("/proc/self/fd"))  # With the log, which the first note has opened.
    console.starts_at = 0.0
    console.start_if_due()
    assert "could not be started" in (problem_in(tmp_path) or "")
    assert console.starts_at is not None
    assert console.output is None
    assert set(os.listdir("/proc/self/fd")) - descriptors == set(), "nothing leaks"


def test_too_many_open_files_are_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    console = console_of(tmp_path, sys.executable, "-c", "pass")
    monkeypatch.setattr("os.pipe", fail)
    console.start_if_due()
    assert "Too many open files" in (problem_in(tmp_path) or "")
    assert console.starts_at is not None


def test_its_last_words_are_the_note_and_the_pause_grows(tmp_path: Path) -> None:
    console = console_of(tmp_path, sys.executable, "-c", "import sys; sys.exit('resequencer: the port is taken')")
    pauses = []
    for _ in range(3):
        console.starts_at = 0.0
        console.start_if_due()

        def has_ended() -> bool:
            console.listen()
            console.reap()
            return console.starts_at is not None

        wait_until(has_ended, "it has ended")
        pauses.append(console._pause_seconds)
    assert problem_in(tmp_path) == "the port is taken"
    assert pauses == sorted(set(pauses))


@pytest.mark.slow
def test_an_endless_line_is_written_in_parts(tmp_path: Path) -> None:
    console = console_of(tmp_path, sys.executable, "-c", "import sys; sys.stdout.write('x' * 3_000_000)")
    console.start_if_due()

    def has_ended() -> bool:
        console.listen()
        console.reap()
        return console.starts_at is not None

    wait_until(has_ended, "it has ended")
    lines = (tmp_path / "service.log").read_text().splitlines()
    assert max(map(len, lines)) < 1_200_000
