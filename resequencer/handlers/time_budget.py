"""A limit for calls to unavailable servers: they may take at most half of the worker's time."""

from domain.clock import Clock, Instant
from domain.envelope import DataEnvelope
from domain.errors import DependencyUnavailable
from resequencer.handlers.port import Handled, Handler, Marks
from resequencer.payment_data import PaymentData

_AT_ONCE_MS = 1_000
"""How much time such calls may take before the limit applies."""


class TimeBudget:
    """A handler around another. If a server's failure shows only after a time-out, each envelope would take that long.

    Once such calls have taken too much of the worker's time, all envelopes wait for that server without a call, until there is
    time again. Envelopes that do not need the server wait too, because the need is known only after the call.
    """

    def __init__(self, handler: Handler, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._server = ""
        self._spent_ms = 0
        self._counted_at: Instant = 0

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        began_at = self._clock.now()
        if self._spent_by(began_at) > _AT_ONCE_MS:
            raise DependencyUnavailable(self._server)
        try:
            return self._handler.handle(envelope, data, marks, now)
        except DependencyUnavailable as error:
            self._server, self._counted_at = error.name, self._clock.now()
            self._spent_ms += max(0, self._counted_at - began_at)
            raise

    def _spent_by(self, now: Instant) -> int:
        """Return the time spent on failed calls, minus the time for other work since. A clock set back reduces nothing."""
        if self._spent_ms:
            self._spent_ms = max(0, self._spent_ms - max(0, now - self._counted_at))
            self._counted_at = now
        return self._spent_ms
