"""A handler that keeps its envelope in `InFlight` during the call."""

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import TransientError
from resequencer.handlers.port import Handled, Handler, Marks
from resequencer.in_flight import CallKind, InFlight
from resequencer.payment_data import PaymentData

_HANDLING = CallKind.HANDLING


class InFlightHandler:
    """A handler around another. Every attempt goes through it: for an arrival, from the stash, or at a deadline."""

    def __init__(self, handler: Handler, in_flight: InFlight) -> None:
        self._handler = handler
        self._in_flight = in_flight

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Call the wrapped handler.

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
