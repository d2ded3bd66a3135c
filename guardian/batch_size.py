"""The batch size of a cycle, chosen so that the cycle ends in time. A worker that has to stop finishes its cycle first."""

_FIRST = 50


class BatchSize:
    """How many records a cycle may poll and how many units it may wake: as many as take about `target_ms`, from 1 to `limit`.

    The cost of one is an average over the cycles before; the latest counts half. The first batch is small, because the speed of
    the handlers is unknown.
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
        """Learn from a cycle with `count` records, woken units or equivalents of output. A negative duration is ignored."""
        if count <= 0 or took_ms < 0:
            return
        cost_ms = took_ms / count
        self._cost_ms = cost_ms if self._cost_ms is None else (self._cost_ms + cost_ms) / 2
