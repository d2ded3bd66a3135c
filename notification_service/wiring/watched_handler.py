"""The guard around the worker's handler: its envelope in flight, a limit for unavailable servers, overruns, and the log."""

from collections.abc import Callable

from guardian.log_rate_limit import LogRateLimit, kind_of
from resequencer.clock import Clock, Instant
from resequencer.envelope import DataEnvelope
from resequencer.errors import DependencyUnavailable, TransientError, words_of
from resequencer.handler import Handled, Handler, Marks
from resequencer.in_flight import CallKind, InFlight
from resequencer.payment_data import PaymentData

_AT_ONCE = 1.0
"""How many seconds calls that find a server unavailable may take before the limit applies."""

_HANDLING = CallKind.HANDLING


class WatchedHandler:
    """A handler around another. Every attempt goes through it: for an arrival, from the stash, or at a deadline.

    `overruns` counts the attempts since the start of the worker that took longer than the processing timeout, failed ones too. An
    attempt runs in the worker's own thread and cannot be interrupted.

    Calls that find a server unavailable may take at most half of the worker's time: if a server's failure shows only after a
    time-out, each envelope would take that long. Beyond that, all envelopes wait for that server without a call, until there is
    time again. Envelopes that do not need the server wait too, because the need is known only after the call.

    `passed` returns seconds that pass, from any beginning: no clock that is set back or forward counts here.
    """

    def __init__(
        self,
        handler: Handler,
        in_flight: InFlight,
        processing_timeout_ms: int,
        passed: Callable[[], float],
        note: Callable[[DataEnvelope, Exception | None, int], object],
    ) -> None:
        """`note` is called with an error and how many milliseconds the call took, and with None for an overrun."""
        self.overruns = 0
        self._handler = handler
        self._in_flight = in_flight
        self._timeout = processing_timeout_ms / 1_000
        self._passed = passed
        self._note = note
        self._server = ""
        self._spent = self._counted_at = 0.0

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Call the wrapped handler.

        Raises:
            EndedItsWorker: Too many workers ended while they handled this envelope.
            DependencyUnavailable: The handler's, or calls to the server that it named last have taken too long.
        """
        in_flight = self._in_flight
        in_flight.take(envelope, _HANDLING)
        began_at = self._passed()
        try:
            if self._spent and self._spent_by(began_at) > _AT_ONCE:
                raise DependencyUnavailable(self._server)
            return self._handler.handle(envelope, data, marks, now)
        except Exception as error:
            if isinstance(error, TransientError):
                in_flight.put_off(envelope)
            if isinstance(error, DependencyUnavailable):
                self._server, self._counted_at = error.name, self._passed()
                self._spent += self._counted_at - began_at
            else:  # An unavailable server is logged by the part that waits for it.
                self._note(envelope, error, _milliseconds(self._passed() - began_at))
            raise
        finally:
            took = self._passed() - began_at
            if took > self._timeout:
                self.overruns += 1
                self._note(envelope, None, _milliseconds(took))
            in_flight.clear()

    def _spent_by(self, at: float) -> float:
        """Return the time spent on failed calls, minus the time for other work since."""
        self._spent, self._counted_at = max(0.0, self._spent - (at - self._counted_at)), at
        return self._spent


def _milliseconds(seconds: float) -> int:
    return round(1_000 * seconds)


class HandlingLog:
    """Logs failures and overruns, at a limited rate for each kind."""

    def __init__(self, rate_limit: LogRateLimit, clock: Clock, processing_timeout_ms: int) -> None:
        self._rate_limit = rate_limit
        self._clock = clock
        self._timeout_ms = processing_timeout_ms

    def note(self, envelope: DataEnvelope, error: Exception | None, took_ms: int) -> None:
        """Log a failure, or without an error an overrun."""
        if error is None:
            kind, what = "overrun", f"took {took_ms / 1_000:.1f} s, processing-timeout is {self._timeout_ms / 1_000:g} s"
        else:
            outcome = "another attempt follows, if any is left" if isinstance(error, TransientError) else "no further attempt"
            kind, what = kind_of(error), f"failed, {outcome}: {words_of(error)}"
        origin = envelope.record.origin
        places = {"unit": envelope.unit, "partition": str(origin.partition), "position": str(origin)}
        self._rate_limit.note(kind, f"handling {origin} of unit {envelope.unit} {what}", self._clock.now(), places, error)
