"""For which exits an envelope is counted, and how these are described."""

import signal

import msgspec
import pytest

from daemon.supervision.exit_cause import ExitCause, blame, cause_of, is_own_doing
from daemon.supervision.in_flight_memory import InFlightEnvelope
from daemon.supervision.suspects import Suspect
from domain.record import Origin, Partition
from resequencer.in_flight import CallKind

HELD = InFlightEnvelope(1, Origin(Partition("T", 0), 17), "uow-1", CallKind.HANDLING, "00ff")
SUSPECT = Suspect("T", 0, 17, "uow-1", CallKind.HANDLING, "00ff", 1, "died")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 99, 255])
def test_an_exit_of_its_own_counts_whatever_its_code(code):
    assert is_own_doing(code)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"])
def test_a_signal_that_a_process_brings_upon_itself_counts(name):
    assert is_own_doing(-signal.Signals[name])


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGPIPE"])
def test_a_signal_from_outside_does_not_count(name):
    assert not is_own_doing(-signal.Signals[name])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nor_does_the_end_of_a_worker_that_was_told_twice_to_stop(number):
    assert not is_own_doing(128 + number)


@pytest.mark.parametrize(
    ("exits", "told"),
    [
        (1, " (exit 1 of 3 on this record; after the last it becomes a dead letter)"),
        (2, " (exit 2 of 3 on this record; after the last it becomes a dead letter)"),
        (
            3,
            " (exit 3 of 3 on this record): the record becomes a dead letter ended-its-worker; "
            "fix the cause, then requeue the record",
        ),
        (4, " (exit 4 on this record, a dead letter since exit 3: report this as a bug)"),
    ],
)
def test_the_record_its_unit_and_what_follows_are_told(exits, told):
    said = blame(HELD, msgspec.structs.replace(SUSPECT, exits=exits))
    assert said == f"while handling T-0@17 of unit 'uow-1'{told}"


def test_a_death_that_could_not_be_counted_names_the_record_too():
    assert blame(HELD, None) == "while handling T-0@17 of unit 'uow-1'"


@pytest.mark.parametrize(
    ("code", "is_hung", "has_poison", "cause"),
    [
        (1, False, False, ExitCause.EXIT_CODE),
        (-9, False, False, ExitCause.SIGNAL),
        (0, False, False, ExitCause.TOLD),
        (143, False, False, ExitCause.TOLD),
        (-15, False, False, ExitCause.TOLD),
        (0, False, True, ExitCause.RECORD),
        (-11, False, True, ExitCause.RECORD),
        (-6, True, True, ExitCause.HUNG),
    ],
)
def test_an_exit_is_counted_for_one_cause(code, is_hung, has_poison, cause):
    assert cause_of(code, is_hung=is_hung, has_poison=has_poison) is cause
