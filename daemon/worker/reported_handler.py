"""A handler that logs failures and slow calls."""

from domain.clock import Clock, Instant
from domain.envelope import DataEnvelope
from domain.errors import DependencyUnavailable, TransientError, words_of
from guardian.log_rate_limit import LogRateLimit, kind_of
from resequencer.handlers.overrun import OverrunCounter
from resequencer.handlers.port import Handled, Marks
from resequencer.payment_data import PaymentData


class ReportedHandler:
    """Logs around another handler. An unavailable server is logged by the part that waits for it."""

    def __init__(self, handler: OverrunCounter, mishaps: LogRateLimit, clock: Clock, processing_timeout_ms: int) -> None:
        self._handler = handler
        self._mishaps = mishaps
        self._clock = clock
        self._processing_timeout_ms = processing_timeout_ms

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        began_at, overruns = self._clock.now(), self._handler.overruns
        try:
            return self._handler.handle(envelope, data, marks, now)
        except DependencyUnavailable:
            raise
        except Exception as error:
            outcome = "another attempt follows, if any is left" if isinstance(error, TransientError) else "no further attempt"
            self._note(kind_of(error), envelope, f"failed, {outcome}: {words_of(error)}", error)
            raise
        finally:
            if self._handler.overruns > overruns:
                took, limit = self._clock.now() - began_at, self._processing_timeout_ms
                self._note("overrun", envelope, f"took {took / 1_000:.1f} s, processing-timeout is {limit / 1_000:g} s")

    def _note(self, kind: str, envelope: DataEnvelope, what: str, error: Exception | None = None) -> None:
        origin = envelope.record.origin
        places = {"unit": envelope.unit, "partition": str(origin.partition), "position": str(origin)}
        self._mishaps.note(kind, f"handling {origin} of unit {envelope.unit} {what}", self._clock.now(), places, error)
