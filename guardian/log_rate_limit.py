"""A limit for repeated warnings: the first of a kind is logged in full, then once a minute how many more there were."""

import logging
from collections import Counter
from collections.abc import Mapping
from traceback import extract_tb

from resequencer.clock import Instant

_INTERVAL_MS = 60_000
_MOST_KINDS = 200
_REST = "of other kinds"
_LOG = logging.getLogger("resequencer.mishaps")


class LogRateLimit:
    """Log a problem once and then count it, so that a million failures do not write a million lines.

    `note` and `tell` are called from one thread.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._more: Counter[str] = Counter()
        self._last: dict[str, str] = {}
        self._counted_from: Instant = 0

    def note(self, kind: str, text: str, now: Instant, places: Mapping[str, object], error: BaseException | None = None) -> None:
        """Log the first problem of a kind, with the error's stack, and count the others."""
        if kind not in self._known and len(self._known) < _MOST_KINDS:
            self._known.add(kind)
            _LOG.warning("%s", text, exc_info=error, extra=dict(places))
            return
        if not self._more:
            self._counted_from = now
        kind = kind if kind in self._known else _REST
        self._more[kind] += 1
        self._last[kind] = text

    def tell(self, now: Instant) -> None:
        """Log the counts once a minute. Call it from time to time. A clock that was set back ends the minute early."""
        if not self._more or 0 <= now - self._counted_from < _INTERVAL_MS:
            return
        seconds = max(0, now - self._counted_from) // 1_000
        for kind, count in self._more.items():
            _LOG.warning("%s: %d more within %d s; the last: %s", kind, count, seconds, self._last[kind])
        self._more.clear()
        self._last.clear()


def kind_of(error: BaseException) -> str:
    """The kind of an error: the type of its cause, or its own, and the line that raised it."""
    cause = error.__cause__ or error
    frames = extract_tb(cause.__traceback__)
    return f"{type(cause).__name__} at {frames[-1].filename}:{frames[-1].lineno}" if frames else type(cause).__name__
