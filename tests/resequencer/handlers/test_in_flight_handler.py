"""The envelope that is handled is in flight from the beginning of the call to its end, however the call ends."""

import pytest
from harness.driving import Envelopes, Recorder

from domain.errors import EndedItsWorker, PermanentError, TransientError
from resequencer.handlers.in_flight_handler import InFlightHandler
from resequencer.handlers.port import Marks
from resequencer.in_flight import CallKind
from resequencer.payment_data import PaymentData


class InFlight:
    """Records the calls."""

    def __init__(self):
        self.told = []
        self.refuses = False

    def take(self, envelope, kind):
        if self.refuses:
            raise EndedItsWorker("it ended 3 workers")
        self.told.append((kind, envelope.offset))

    def put_off(self, envelope):
        self.told.append(("put off", envelope.offset))

    def clear(self):
        self.told.append("cleared")


@pytest.fixture
def in_flight():
    return InFlight()


def handle(in_flight, envelope, handler=None):
    handler = handler or Recorder()
    return InFlightHandler(handler, in_flight).handle(envelope, PaymentData(), Marks(), 17)


def test_it_is_taken_before_the_call_and_let_go_after_it(in_flight):
    class Handler(Recorder):
        def handle(self, *arguments):
            in_flight.told.append("called")
            return super().handle(*arguments)

    handled = handle(in_flight, Envelopes()(1), Handler())
    assert len(handled.notifications) == 1
    assert in_flight.told == [(CallKind.HANDLING, 1), "called", "cleared"]


@pytest.mark.parametrize(
    ("error", "told"), [(TransientError("away"), [("put off", 1)]), (PermanentError("never"), []), (ValueError("a mistake"), [])]
)
def test_it_is_let_go_when_the_call_fails_and_put_off_when_it_will_be_made_again(in_flight, error, told):
    handler, envelope = Recorder(), Envelopes()(1)
    handler.fail(envelope, error)
    with pytest.raises(type(error)):
        handle(in_flight, envelope, handler)
    assert in_flight.told == [(CallKind.HANDLING, 1), *told, "cleared"]


def test_what_the_hand_refuses_is_not_handled(in_flight):
    in_flight.refuses, handler = True, Recorder()
    with pytest.raises(EndedItsWorker):
        handle(in_flight, Envelopes()(1), handler)
    assert (handler.seen, in_flight.told) == ([], [])
