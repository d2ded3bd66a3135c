"""The worker runs `archive` at an interval, one process at a time, and logs its output."""

import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from harness.waiting import wait_until

from notification_service.command_line import parse
from notification_service.commands.command import repeated_arguments
from notification_service.configuration.configuration import load
from notification_service.worker.scheduled_archive import Archiving

EVERY_MS = 60_000


@pytest.fixture
def archiving() -> Iterator[Callable[..., Archiving]]:
    made: list[Archiving] = []

    def make(script: str, every_ms: int | None = EVERY_MS) -> Archiving:
        """Make it with a process of this script in place of the command."""
        made.append(Archiving([], every_ms))
        made[-1]._command = [sys.executable, "-S", "-c", script]
        return made[-1]

    yield make
    for each in made:
        each.close()


def wait_for_end(archiving: Archiving, now: int) -> None:
    def has_ended() -> bool:
        archiving.look(now)
        return archiving._process is None

    wait_until(has_ended, "it has ended")


def test_it_begins_when_it_is_time_and_tells_what_was_moved(archiving, caplog) -> None:
    caplog.set_level(logging.INFO)
    each = archiving("print('T-0: moved'); print('T-1: moved')")
    each.look(1_000_000)
    each.look(1_000_000 + EVERY_MS - 1)
    assert each._process is None
    each.look(1_000_000 + EVERY_MS)
    assert each._process is not None
    wait_for_end(each, 1_000_000 + EVERY_MS)
    assert [(record.levelname, record.message) for record in caplog.records] == [("INFO", "T-0: moved"), ("INFO", "T-1: moved")]


def test_one_that_is_not_through_keeps_the_next_from_beginning(archiving) -> None:
    each = archiving("import time; time.sleep(600)")
    each.look(0)
    each.look(EVERY_MS)
    first = each._process
    each.look(10 * EVERY_MS)
    assert each._process is first is not None


def test_a_failure_is_reported_and_it_is_tried_again_the_next_time(archiving, caplog) -> None:
    each = archiving("import sys; sys.stderr.write('no room\\n'); sys.exit(4)")
    each.look(0)
    for round_number in (1, 2):
        each.look(round_number * EVERY_MS)
        wait_for_end(each, round_number * EVERY_MS)
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", "no room")] * 2


def test_it_ends_with_the_worker(archiving) -> None:
    each = archiving("import time; time.sleep(600)")
    each.look(0)
    each.look(EVERY_MS)
    process = each._process
    each.close()
    assert process is not None
    assert process.returncode == -9


def test_it_never_begins_unless_a_time_was_given(archiving) -> None:
    each = archiving("print()", None)
    each.look(0)
    each.look(10**12)
    assert each._process is None


@pytest.mark.parametrize("verb", ["run", "start", "supervise", "restart"])
def test_the_flag_is_the_key(verb) -> None:
    arguments = parse([verb, "--archive", "--set", "payment-status-notification.http.port=0"])
    again = parse([verb, *repeated_arguments(arguments)])
    for each in (arguments, again):
        assert load(each.config, each.overrides).ingress.archive_every_ms == 600_000
    assert load().ingress.archive_every_ms is None
