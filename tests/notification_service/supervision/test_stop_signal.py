"""The stop signal: the first drains, a second one ends at once."""

import os
import signal
from threading import Event

import pytest

from notification_service.supervision.stop_signal import Lifeline, StopSignal


@pytest.fixture
def stop():
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    made = StopSignal()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_it(stop, number):
    assert not stop.is_set
    signal.raise_signal(number)
    assert stop.is_set


def test_a_second_signal_ends_the_process_with_its_number(stop, monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    signal.raise_signal(signal.SIGTERM)
    assert ended == []
    signal.raise_signal(signal.SIGINT)
    assert ended == [128 + signal.SIGINT]


class Slept(Event):
    """Notes how long it is waited for, and does not wait. In the wait of `number`, counted from 1, `strike` is called."""

    def __init__(self, number=0, strike=None):
        super().__init__()
        self.seconds = []
        self._number, self._strike = number, strike

    def wait(self, timeout=None):
        self.seconds.append(timeout)
        if len(self.seconds) == self._number:
            self._strike()
        return self.is_set()


def test_waiting_is_the_whole_time_in_slices(stop):
    slept = Slept()
    stop.wait(250, slept)
    assert slept.seconds == [0.1, 0.1, 0.05]


def test_waiting_ends_with_the_slice_in_which_the_signal_came(stop):
    slept = Slept(1, lambda: signal.raise_signal(signal.SIGTERM))
    stop.wait(60_000, slept)
    stop.wait(60_000, slept)
    assert slept.seconds == [0.1]


def test_waiting_ends_with_its_event(stop):
    slept = Slept(2, lambda: slept.set())
    stop.wait(60_000, slept)
    assert slept.seconds == [0.1, 0.1]


def test_a_lifeline_that_is_cut_sets_it_too():
    theirs, ours = os.pipe()
    stop = StopSignal(Lifeline(theirs))
    assert not stop.is_set
    os.close(ours)
    assert stop.is_set
    os.close(theirs)
