"""A counter of attempts that took longer than the processing timeout."""

from domain.clock import Clock, Instant
from domain.envelope import DataEnvelope
from resequencer.handlers.port import Handled, Handler, Marks
from resequencer.payment_data import PaymentData


class OverrunCounter:
    """A handler around another that counts overruns. An attempt runs in the worker's own thread and cannot be interrupted.

    `overruns` counts since the start of the worker, including failed attempts.
    """

    def __init__(self, handler: Handler, clock: Clock, processing_timeout_ms: int) -> None:
        self.overruns = 0
        self._handler = handler
        self._clock = clock
        self._processing_timeout_ms = processing_timeout_ms

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        started_at = self._clock.now()
        try:
            return self._handler.handle(envelope, data, marks, now)
        finally:
            if self._clock.now() - started_at > self._processing_timeout_ms:
                self.overruns += 1
