"""How a worker ended, and what it reported itself."""

import msgspec
import pytest

from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State, report
from notification_service.supervision.exit_rules import cause_of
from notification_service.supervision.exits import Exits

NOW = 1_774_740_835_941
OURS = Identity(17, "conf/application.conf", NOW)
AT = "2026-03-28T23:33:55.941Z"


class Clock:
    def now(self) -> int:
        return NOW


@pytest.fixture
def status(tmp_path):
    return StatusFile(tmp_path)


@pytest.fixture
def exits(status):
    return Exits(status, OURS, Clock())


def note(exits, code):
    ending = exits.how(code)
    exits.note(ending, cause_of(code, is_hung=False, has_poison=False))
    return ending


def test_before_the_first_death_the_service_is_starting_and_a_worker_is_reported_none(exits, status):
    assert status.find() == report(OURS, State.STARTING, None, NOW)
    assert exits.arguments == ["--restarts", "0"]


def test_a_killed_worker_says_nothing_and_is_reported_by_its_signal(exits, status):
    status.write(report(OURS, State.READY, "not of its end", NOW))
    assert note(exits, -9) == f"was killed by SIGKILL at {AT}"
    ending = f"was killed by SIGKILL at {AT}"
    assert exits.arguments == ["--restarts", "1", "--last-exit", ending, "--restart-causes", '{"signal":1}']
    assert status.find().reason == f"the worker was killed by SIGKILL at {AT}"


def test_what_a_worker_said_of_its_end_is_kept(exits, status):
    status.write(report(OURS, State.STOPPED, "state.db: it is empty", NOW))
    assert note(exits, 1) == f"ended with 1 at {AT}: state.db: it is empty"
    found = status.find()
    assert (found.restarts, found.last_exit) == (1, f"ended with 1 at {AT}: state.db: it is empty")


def test_what_one_worker_said_is_not_said_of_the_next(exits, status):
    status.write(report(OURS, State.STOPPED, "state.db: it is empty", NOW))
    note(exits, 1)
    assert note(exits, -15) == f"was killed by SIGTERM at {AT}"


def test_what_another_service_said_is_not_said_of_ours(exits, status):
    status.write(report(msgspec.structs.replace(OURS, process_id=18), State.STOPPED, "theirs", NOW))
    assert note(exits, 1) == f"ended with 1 at {AT}"


def test_the_last_death_says_that_no_other_follows(exits, status):
    note(exits, -9)
    assert exits.note_the_last() == status.find().reason
    assert "no further restart" in status.find().reason


def test_restarts_are_counted_by_their_cause(exits, status):
    for code in (-9, 1, -9):
        note(exits, code)
    assert status.find().restart_causes == {"signal": 2, "exit-code": 1}


def test_one_of_several_workers_is_reported_by_its_slot(status):
    exits = Exits(status, msgspec.structs.replace(OURS, slot=1, worker_count=2), Clock())
    note(exits, -9)
    found = status.find()
    assert (found.slot, found.worker_count, found.reason) == (1, 2, f"worker 1 was killed by SIGKILL at {AT}")


def test_a_service_that_is_stopped_before_the_next_worker_began_has_not_failed(exits, status):
    note(exits, -9)
    exits.note_stopped()
    assert (status.find().state, status.find().reason) == (State.STOPPED, None)


def test_what_hung_is_reported_with_its_limit_whatever_signal_ended_it(exits):
    assert exits.how(-6, 60.0) == f"hung for more than 60 s (handling-limit) and was ended at {AT}"
    assert exits.how(-9, 0.5) == f"hung for more than 0.5 s (handling-limit) and was ended at {AT}"


def test_what_a_worker_is_slow_with_stands_in_its_last_report_which_stays_as_old_as_it_is(exits, status):
    last = report(OURS, State.READY, None, NOW - 9_000)
    status.write(last)
    exits.tell_slow("handling T-0@17")
    assert status.find() == msgspec.structs.replace(last, reason="handling T-0@17")


def test_it_does_not_learn_of_another_services_worker(exits, status):
    theirs = report(msgspec.structs.replace(OURS, process_id=18), State.READY, None, NOW)
    status.write(theirs)
    exits.tell_slow("handling T-0@17")
    assert status.find() == theirs
