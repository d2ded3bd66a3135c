"""For which exits an envelope is counted, and how these are described."""

import signal

import msgspec
import pytest

from notification_service.status.report import ExitCause
from notification_service.supervision.exit_rules import blame, cause_of, is_own_doing, names_of
from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.suspects import Suspect
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition

HELD = InFlightEnvelope(1, Origin(Partition("T", 0), 17), "uow-1", CallKind.HANDLING, "00ff")
SUSPECT = Suspect("T", 0, 17, "uow-1", CallKind.HANDLING, "00ff", 1, "died")
OF_ITS_OWN = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)
FROM_OUTSIDE = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGPIPE,
)  # fmt: skip


def test_of_many_envelopes_the_first_are_named():
    assert names_of([HELD] * 2) == "handling T-0@17 of unit 'uow-1', handling T-0@17 of unit 'uow-1'"
    assert names_of([HELD] * 5).count("T-0@17") == 5
    assert names_of([HELD] * 7).endswith("of unit 'uow-1' and 2 more")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 99, 255, *(-each for each in OF_ITS_OWN)])
def test_an_exit_with_any_code_and_a_signal_that_a_process_brings_upon_itself_count(code):
    assert is_own_doing(code)


@pytest.mark.parametrize("code", [*(-each for each in FROM_OUTSIDE), 128 + signal.SIGTERM, 128 + signal.SIGINT])
def test_a_signal_from_outside_and_the_end_of_a_worker_that_was_ordered_twice_to_stop_do_not(code):
    assert not is_own_doing(code)


@pytest.mark.parametrize(
    ("exits", "ending"),
    [(1, "exit 1 of 3"), (2, "exit 2 of 3"), (3, "becomes a dead letter ended-its-worker"), (4, "a dead letter since exit 3")],
)
def test_the_record_its_unit_and_what_follows_are_reported(exits, ending):
    text = blame(HELD, msgspec.structs.replace(SUSPECT, exits=exits))
    assert text.startswith("while handling T-0@17 of unit 'uow-1'")
    assert ending in text


def test_a_death_that_could_not_be_counted_names_the_record_too():
    assert blame(HELD, None) == "while handling T-0@17 of unit 'uow-1'"


@pytest.mark.parametrize(
    ("code", "is_hung", "has_poison", "cause"),
    [
        (1, False, False, ExitCause.EXIT_CODE),
        (-9, False, False, ExitCause.SIGNAL),
        (0, False, False, ExitCause.ORDERED),
        (143, False, False, ExitCause.ORDERED),
        (-15, False, False, ExitCause.ORDERED),
        (0, False, True, ExitCause.RECORD),
        (-11, False, True, ExitCause.RECORD),
        (-6, True, True, ExitCause.HUNG),
    ],
)
def test_an_exit_is_counted_for_one_cause(code, is_hung, has_poison, cause):
    assert cause_of(code, is_hung=is_hung, has_poison=has_poison) is cause
