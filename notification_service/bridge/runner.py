"""Runs the bridge: takes messages, appends them durably, and only then acknowledges them.

Both raise errors of the transport's port (guardian/ports.py). An object that has raised TransportUnavailable or
TransportRefused is closed, and another one is opened.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple, Protocol

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.bridge.settings import find_shorter, with_key
from notification_service.connectors.line_format import Line
from resequencer.errors import ResequencerError


class TooLarge(TransportRefused):
    """A start never takes one of the lines to append, or several: they are too large. The others may have been appended.

    Which ones is known only of lines that are appended alone: a client blames all that were under way together.
    """


class BridgeSource(Protocol):
    """An open source. Used from one thread."""

    def take(self, timeout_ms: int) -> Sequence[Line]:
        """Return what has come since the last call, in its order; wait up to `timeout_ms` for a first message.

        A line has the message's body, its key if it has one, and its properties as headers.

        Raises:
            TransportUnavailable: The connection is lost. What was not acknowledged comes again, in order, by the next one.
            ConfigurationError: Another program has taken the place of this one at the broker.
        """
        ...

    def acknowledge(self) -> None:
        """Acknowledge everything that was taken. That may be lost on its way; then the messages come again.

        Raises: as `take`.
        """
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for an operator about what does not stop the bridge."""
        ...

    def close(self) -> None: ...


class Start(Protocol):
    """An open replayable start. Used from one thread."""

    def append(self, lines: Sequence[Line]) -> None:
        """Append the lines durably, each to the partition of its key, and keep their order within a partition.

        Raises:
            TransportUnavailable: It does not answer, or takes nothing more. Any of the lines may have been appended; when
                they are appended again, they are duplicates.
            TooLarge: It never takes one of the lines.
            TransportRefused: It takes nothing before an operator has changed something.
        """
        ...

    def close(self) -> None: ...


_LOG = logging.getLogger("resequencer.bridge")
_WAIT_MS = 500
_REPORT_MS = 1_000
_FIRST_PAUSE_MS = 200
_LONGEST_PAUSE_MS = 5_000
_STEADY_SECONDS = 10.0
_SUSPICIOUS_LIVES = 3
_LONGEST_STAND_BACK_MS = 300_000
"""A source that is lost within `_STEADY_SECONDS` may have been taken by another bridge, and the broker may not have reported it:
pauses double up to the longest one, so that two bridges do not take it from each other all the time.
"""


class BridgeReport(NamedTuple):
    """How the bridge is doing. Counts are of messages, since the start of the process.

    `appended` are durable and acknowledged, `waiting` are taken and not acknowledged. `problem` says why the bridge stands
    still, None while it does not; `notes` are sentences about what does not stop it.
    """

    appended: int
    waiting: int
    problem: str | None
    notes: tuple[str, ...] = ()


class _StandsStill(Exception):
    """One of the two sides does not work."""

    def __init__(self, side: str, error: ResequencerError) -> None:
        super().__init__(f"{side}: {error}")
        self.side = side


class Bridge:
    """`open_source` and `open_start` are called again after each failure: what was repaired is found.

    What was appended and not acknowledged comes again, and is appended twice. The resequencer drops the second one. `wait`
    sleeps for that many milliseconds, and returns earlier when the process is to end. `keyed` gives a line its unit of
    work as the key.
    """

    def __init__(
        self,
        open_source: Callable[[], BridgeSource],
        open_start: Callable[[], Start],
        wait: Callable[[int], object],
        keyed: Callable[[Line], Line] = with_key,
    ) -> None:
        self._open_source, self._open_start, self._wait, self._keyed = open_source, open_start, wait, keyed
        self._source: BridgeSource | None = None
        self._start: Start | None = None
        self._taken: list[Line] = []
        self._alone: int | None = None
        """Of those that were taken, how many were appended, each alone; None while they are appended together."""
        self._opened_at = 0.0
        self._pause_ms = _FIRST_PAUSE_MS
        self._short_lives = 0
        self._appended = 0
        self._problem: str | None = None

    def run(self, is_stopping: Callable[[], bool]) -> None:
        """Carry messages over until `is_stopping`. What is not acknowledged by then stays with the broker.

        Raises:
            ConfigurationError: Another program has taken the place of this one at the broker.
        """
        try:
            while not is_stopping():
                self.turn()
        finally:
            self.close()

    def turn(self) -> None:
        """Carry over what has come. After a failure of one side it is opened again at the next turn, after a pause."""
        try:
            self._carry()
        except _StandsStill as error:
            self._stand_still(error)
        else:
            self._pause_ms = _FIRST_PAUSE_MS
            if monotonic() - self._opened_at > _STEADY_SECONDS:
                self._short_lives = 0
            if self._problem is not None:
                _LOG.info("the bridge continues")
                self._problem = None

    def report(self) -> BridgeReport:
        """Return how it is doing. May be called from any thread."""
        source = self._source
        return BridgeReport(self._appended, len(self._taken), self._problem, () if source is None else tuple(source.notes))

    def close(self) -> None:
        self._close_source()
        self._close_start()

    def _carry(self) -> None:
        with _answering("start"):
            # Without a start nothing is taken: the broker keeps everything.
            start = self._start = self._start or self._open_start()
        with _answering("source"):
            source = self._opened_source()
            # What a failed start did not take is still here if the source is: else it comes again.
            self._taken += map(self._keyed, source.take(0 if self._taken else _WAIT_MS))
        if not self._taken:
            return
        with _answering("start"):
            if not self._append(start):
                return
        with _answering("source"):
            source.acknowledge()
        self._appended += len(self._taken)
        self._taken = []

    def _append(self, start: Start) -> bool:
        """Append what was taken; return whether all of it is. What is never taken is cut, and appended at the next turn.

        Raises:
            TransportRefused: There is nothing shorter.
        """
        try:
            if self._alone is None:
                start.append(self._taken)
            else:
                while self._alone < len(self._taken):
                    start.append([self._taken[self._alone]])
                    self._alone += 1
        except TooLarge as error:
            self._close_start()  # Batches may still be on their way.
            if self._alone is not None:
                self._shorten(self._alone, error)
            self._alone = self._alone or 0
            return False
        self._alone = None
        return True

    def _shorten(self, at: int, error: TooLarge) -> None:
        shorter = find_shorter(self._taken[at])
        if shorter is None:
            way_out = "Nothing behind it comes before that, or before the message is taken away at the broker of the source"
            raise TransportRefused(error.what, f"{error.problem}: not even a note of its length fits. {way_out}")
        _LOG.warning("a message becomes a dead letter, too-large, of which the beginning is kept: %s", error)
        self._taken[at] = shorter

    def _opened_source(self) -> BridgeSource:
        if self._source is None:
            self._source = self._open_source()
            self._opened_at = monotonic()
        return self._source

    def _stand_still(self, error: _StandsStill) -> None:
        problem, pause_ms = str(error), self._pause_ms
        self._pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)
        if error.side == "start":
            self._close_start()
        elif self._source is not None:
            if monotonic() - self._opened_at < _STEADY_SECONDS:
                self._short_lives += 1
                pause_ms = max(pause_ms, min(_FIRST_PAUSE_MS << self._short_lives, _LONGEST_STAND_BACK_MS))
            if self._short_lives >= _SUSPICIOUS_LIVES:
                problem += f". It was lost {self._short_lives} times soon after it was opened, and is tried again in "
                problem += f"{pause_ms / 1_000:.0f} s. If another bridge has the same client id, give each its own"
            self._close_source()
        if self._problem != problem:
            _LOG.warning("the bridge stands still: %s", problem)
        self._problem = problem
        self._wait(pause_ms)

    def _close_source(self) -> None:
        source, self._source = self._source, None
        self._taken, self._alone = [], None
        if source is not None:
            source.close()

    def _close_start(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            start.close()


def run_reporting(
    bridge: Bridge,
    is_stopping: Callable[[], bool],
    report: Callable[[BridgeReport], object],
    wait: Callable[[int], object],
) -> None:
    """Run the bridge in a thread, and report every second, also while one of its sides does not answer.

    Raises: as `Bridge.run`.
    """
    with ThreadPoolExecutor(1, "bridge") as thread:
        running = thread.submit(bridge.run, is_stopping)
        while not running.done() and not is_stopping():
            report(bridge.report())
            wait(_REPORT_MS)
        running.result()


@contextmanager
def _answering(side: str) -> Iterator[None]:
    try:
        yield
    except (TransportUnavailable, TransportRefused) as error:
        raise _StandsStill(side, error) from error
