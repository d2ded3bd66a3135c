"""How much a cycle takes on, so that it ends in time: a worker that is told to stop finishes its cycle first."""

_FIRST = 50


class BatchSize:
    """Records a cycle may take, and units it may wake: as many as take about `target_ms`, from 1 to `limit`.

    What one costs is learned from the cycles before, half from the latest. Begins small: nobody knows yet how slow the
    handlers are.
    """

    def __init__(self, limit: int, target_ms: int) -> None:
        assert limit > 0
        assert target_ms > 0
        self._limit = limit
        self._target_ms = target_ms
        self._cost_ms: float | None = None

    @property
    def at_once(self) -> int:
        if self._cost_ms is None:
            return min(self._limit, _FIRST)
        if self._cost_ms * self._limit <= self._target_ms:
            return self._limit
        return max(1, int(self._target_ms / self._cost_ms))

    def note(self, count: int, took_ms: int) -> None:
        """A cycle took on `count` records, units to wake, or as much to let out. A clock that was set back teaches nothing."""
        if count <= 0 or took_ms < 0:
            return
        cost_ms = took_ms / count
        self._cost_ms = cost_ms if self._cost_ms is None else (self._cost_ms + cost_ms) / 2
