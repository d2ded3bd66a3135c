"""A worker's envelopes in flight: a suspect counts until its output has left, and a condemned envelope is not processed."""

import msgspec
import pytest
from harness.driving import Envelopes

from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.suspects import EXITS_OF_ONE, Suspects
from notification_service.worker.worker import WorkerInFlight
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import EndedItsWorker
from resequencer.in_flight import CallKind


class Workers:
    """Workers that get the same envelopes, one after the other, and their supervisor."""

    def __init__(self, directory):
        self.memory = InFlightMemory()
        self.suspects = Suspects(directory)
        self.begin()

    def begin(self):
        self.in_flight = WorkerInFlight(self.memory, self.suspects)
        self.in_flight.look()

    def die(self, envelope, kind=CallKind.HANDLING, times=1):
        for _ in range(times):
            self.in_flight.take(envelope, kind)
            self.suspects.count(self.memory.turn.find(), "was killed by SIGSEGV")
            self.memory.clear()
            self.begin()

    def survive(self, envelope, kind=CallKind.HANDLING):
        self.in_flight.take(envelope, kind)
        self.in_flight.clear()

    @property
    def known(self):
        return {origin.offset: each.exits for origin, each in self.suspects.find_all().items()}


@pytest.fixture
def workers(tmp_path):
    return Workers(tmp_path)


@pytest.fixture
def envelope():
    return Envelopes()(1)


def everything(origin):
    return True


def nothing(origin):
    return False


def test_what_workers_died_of_is_taken_up_until_the_third_death_and_not_again(workers, envelope, caplog):
    workers.die(envelope, times=EXITS_OF_ONE)
    with pytest.raises(EndedItsWorker) as raised:
        workers.in_flight.take(envelope, CallKind.HANDLING)
    assert raised.value.reason is DeadLetterReason.ENDED_ITS_WORKER
    assert "ended 3 workers, the last of which was killed by SIGSEGV" in str(raised.value)
    assert "IPF_PROCESSING_DATA-0@1 of unit 'uow-1' becomes a dead letter" in caplog.text
    assert workers.memory.turn.find() is None


def test_another_envelope_is_taken_up(workers, envelope):
    workers.die(envelope, times=EXITS_OF_ONE)
    workers.survive(Envelopes()(2, identity="another"))
    neighbours = Envelopes()
    neighbours(1)
    workers.survive(neighbours(2))


def test_what_is_condemned_for_one_deed_may_be_met_in_another(workers, envelope):
    """A strategy must be asked about an envelope whose handler killed a worker, or the unit could not continue."""
    workers.die(envelope, times=EXITS_OF_ONE)
    workers.survive(envelope, CallKind.ASKING)


def test_what_survived_is_forgotten_once_it_has_left(workers, envelope):
    workers.die(envelope, times=2)
    workers.survive(envelope)
    workers.in_flight.forget_those_that(nothing)
    assert workers.known == {1: 2}
    workers.in_flight.look()
    workers.in_flight.forget_those_that(everything)
    assert workers.known == {}


def test_so_is_what_was_set_aside(workers, envelope):
    workers.die(envelope, times=EXITS_OF_ONE)
    with pytest.raises(EndedItsWorker):
        workers.in_flight.take(envelope, CallKind.HANDLING)
    workers.in_flight.forget_those_that(everything)
    assert workers.known == {}


def test_what_is_tried_again_later_is_not_forgotten(workers, envelope):
    workers.die(envelope)
    workers.in_flight.take(envelope, CallKind.HANDLING)
    workers.in_flight.postpone(envelope)
    workers.in_flight.clear()
    workers.in_flight.forget_those_that(everything)
    assert workers.known == {1: 1}


def test_what_was_only_asked_about_has_not_been_handled(workers, envelope):
    workers.die(envelope, CallKind.ASKING)
    workers.survive(envelope, CallKind.ASKING)
    workers.in_flight.forget_those_that(everything)
    assert workers.known == {1: 1}


def test_another_record_at_its_position_is_innocent_and_the_suspicion_is_gone(workers, envelope):
    workers.die(envelope, times=EXITS_OF_ONE)
    workers.survive(Envelopes()(1, identity="of a topic that was made anew"))
    assert workers.known == {}


def test_what_another_worker_died_of_meanwhile_is_known_from_the_next_look(workers, envelope):
    other = WorkerInFlight(InFlightMemory(), workers.suspects)
    other.look()
    workers.die(envelope, times=EXITS_OF_ONE)
    other.look()
    with pytest.raises(EndedItsWorker):
        other.take(envelope, CallKind.HANDLING)


def test_a_record_that_ends_workers_while_it_is_read_has_no_unit_yet_and_is_not_read_again(workers, envelope):
    unread = msgspec.structs.replace(envelope, unit="", id_hash=b"unread__", digest=b"unread__")
    workers.die(unread, CallKind.READING, times=EXITS_OF_ONE)
    with pytest.raises(EndedItsWorker, match=r"^reading it ended 3 workers"):
        workers.in_flight.take(unread, CallKind.READING)
    workers.in_flight.forget_those_that(everything)
    assert workers.known == {}


def test_an_exit_of_the_handler_counts_although_the_record_is_read_before_with_another_identity(workers, envelope):
    unread = msgspec.structs.replace(envelope, unit="", id_hash=b"unread__", digest=b"unread__")
    for number in range(EXITS_OF_ONE):
        assert workers.known == ({} if number == 0 else {envelope.offset: number})
        workers.survive(unread, CallKind.READING)
        workers.die(envelope)
    workers.survive(unread, CallKind.READING)
    with pytest.raises(EndedItsWorker, match=r"^handling it"):
        workers.in_flight.take(envelope, CallKind.HANDLING)
