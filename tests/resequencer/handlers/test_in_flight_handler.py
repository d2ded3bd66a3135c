"""The envelope that is handled stands in the hand from the call to its end, however it ends."""

import pytest
from harness.driving import Envelopes, Recorder

from domain.errors import EndedItsWorker, PermanentError, TransientError
from resequencer.handlers.in_flight_handler import HandlerInHand
from resequencer.handlers.port import Marks
from resequencer.in_flight import Deed
from resequencer.payment_data import PaymentData


class Hand:
    """Notes what it is told."""

    def __init__(self):
        self.told = []
        self.refuses = False

    def take(self, envelope, deed):
        if self.refuses:
            raise EndedItsWorker("it ended 3 workers")
        self.told.append((deed, envelope.offset))

    def put_off(self, envelope):
        self.told.append(("put off", envelope.offset))

    def let_go(self):
        self.told.append("let go")


@pytest.fixture
def hand():
    return Hand()


def handle(hand, envelope, handler=None):
    handler = handler or Recorder()
    return HandlerInHand(handler, hand).handle(envelope, PaymentData(), Marks(), 17)


def test_it_is_taken_before_the_call_and_let_go_after_it(hand):
    class Handler(Recorder):
        def handle(self, *arguments):
            hand.told.append("called")
            return super().handle(*arguments)

    handled = handle(hand, Envelopes()(1), Handler())
    assert len(handled.notifications) == 1
    assert hand.told == [(Deed.HANDLING, 1), "called", "let go"]


@pytest.mark.parametrize(
    ("error", "told"), [(TransientError("away"), [("put off", 1)]), (PermanentError("never"), []), (ValueError("a mistake"), [])]
)
def test_it_is_let_go_when_the_call_fails_and_put_off_when_it_will_be_made_again(hand, error, told):
    handler, envelope = Recorder(), Envelopes()(1)
    handler.fail(envelope, error)
    with pytest.raises(type(error)):
        handle(hand, envelope, handler)
    assert hand.told == [(Deed.HANDLING, 1), *told, "let go"]


def test_what_the_hand_refuses_is_not_handled(hand):
    hand.refuses, handler = True, Recorder()
    with pytest.raises(EndedItsWorker):
        handle(hand, Envelopes()(1), handler)
    assert (handler.seen, hand.told) == ([], [])
