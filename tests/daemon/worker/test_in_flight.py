"""A worker's hand: what is known of an envelope counts until it has left, and the condemned are not taken up."""

import pytest
from harness.driving import Envelopes

from daemon.supervision.in_flight_memory import HandMemory
from daemon.supervision.suspects import DEATHS_OF_ONE, Suspects
from daemon.worker.in_flight import WorkerHand
from domain.dead_letter import DeadLetterReason
from domain.errors import EndedItsWorker
from resequencer.in_flight import Deed


class Lives:
    """Workers that hold the same envelopes, one after the other, and their supervisor."""

    def __init__(self, directory):
        self.memory = HandMemory()
        self.suspects = Suspects(directory)
        self.begin()

    def begin(self):
        self.hand = WorkerHand(self.memory, self.suspects)
        self.hand.look()

    def die(self, envelope, deed=Deed.HANDLING, times=1):
        for _ in range(times):
            self.hand.take(envelope, deed)
            self.suspects.count(self.memory.find(), "was killed by SIGSEGV")
            self.memory.clear()
            self.begin()

    def survive(self, envelope, deed=Deed.HANDLING):
        self.hand.take(envelope, deed)
        self.hand.let_go()

    @property
    def known(self):
        return {origin.offset: each.deaths for origin, each in self.suspects.find_all().items()}


@pytest.fixture
def lives(tmp_path):
    return Lives(tmp_path)


@pytest.fixture
def envelope():
    return Envelopes()(1)


def everything(origin):
    return True


def nothing(origin):
    return False


def test_what_workers_died_of_is_taken_up_until_the_third_death_and_not_again(lives, envelope, caplog):
    lives.die(envelope, times=DEATHS_OF_ONE)
    with pytest.raises(EndedItsWorker) as raised:
        lives.hand.take(envelope, Deed.HANDLING)
    assert raised.value.reason is DeadLetterReason.ENDED_ITS_WORKER
    assert str(raised.value) == (
        "handling it ended 3 workers, the last of which was killed by SIGSEGV; correct what fails on it, then requeue it"
    )
    assert "IPF_PROCESSING_DATA-0@1 of unit 'uow-1' is set aside" in caplog.text
    assert lives.memory.find() is None


def test_another_envelope_is_taken_up(lives, envelope):
    lives.die(envelope, times=DEATHS_OF_ONE)
    lives.survive(Envelopes()(2, identity="another"))
    neighbours = Envelopes()
    neighbours(1)
    lives.survive(neighbours(2))


def test_what_is_condemned_for_one_deed_may_be_met_in_another(lives, envelope):
    """A strategy must be asked about what its handler died of, or its unit could not go on."""
    lives.die(envelope, times=DEATHS_OF_ONE)
    lives.survive(envelope, Deed.ASKING)


def test_what_survived_is_forgotten_once_it_has_left(lives, envelope):
    lives.die(envelope, times=2)
    lives.survive(envelope)
    lives.hand.forget_those_that(nothing)
    assert lives.known == {1: 2}
    lives.hand.look()
    lives.hand.forget_those_that(everything)
    assert lives.known == {}


def test_so_is_what_was_set_aside(lives, envelope):
    lives.die(envelope, times=DEATHS_OF_ONE)
    with pytest.raises(EndedItsWorker):
        lives.hand.take(envelope, Deed.HANDLING)
    lives.hand.forget_those_that(everything)
    assert lives.known == {}


def test_what_is_tried_again_later_is_not_forgotten(lives, envelope):
    lives.die(envelope)
    lives.hand.take(envelope, Deed.HANDLING)
    lives.hand.put_off(envelope)
    lives.hand.let_go()
    lives.hand.forget_those_that(everything)
    assert lives.known == {1: 1}


def test_what_was_only_asked_about_has_not_been_handled(lives, envelope):
    lives.die(envelope, Deed.ASKING)
    lives.survive(envelope, Deed.ASKING)
    lives.hand.forget_those_that(everything)
    assert lives.known == {1: 1}


def test_another_record_at_its_position_is_innocent_and_the_suspicion_is_gone(lives, envelope):
    lives.die(envelope, times=DEATHS_OF_ONE)
    lives.survive(Envelopes()(1, identity="of a topic that was made anew"))
    assert lives.known == {}


def test_what_another_worker_died_of_meanwhile_is_known_from_the_next_look(lives, envelope):
    other = WorkerHand(HandMemory(), lives.suspects)
    other.look()
    lives.die(envelope, times=DEATHS_OF_ONE)
    other.look()
    with pytest.raises(EndedItsWorker):
        other.take(envelope, Deed.HANDLING)
