"""The envelope that is handled stands in a in_flight meanwhile."""

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import TransientError
from resequencer.handlers.port import Handled, Handler, Marks
from resequencer.in_flight import CallKind, InFlight
from resequencer.payment_data import PaymentData

_HANDLING = CallKind.HANDLING


class InFlightHandler:
    """A handler around another. Each attempt passes here, be it of what just came, of the stash, or at a deadline."""

    def __init__(self, handler: Handler, in_flight: InFlight) -> None:
        self._handler = handler
        self._in_flight = in_flight

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """As the handler around which it is.

        Raises:
            EndedItsWorker: Too many workers ended while they handled this envelope.
        """
        self._in_flight.take(envelope, _HANDLING)
        try:
            return self._handler.handle(envelope, data, marks, now)
        except TransientError:
            self._in_flight.put_off(envelope)
            raise
        finally:
            self._in_flight.clear()
