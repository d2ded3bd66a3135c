"""Chooses the interval at which a chart divides time."""

_MOST = 75
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_INTERVALS = (
    *(100, 200, 500, _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 15 * _SECOND, 30 * _SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR),
)


def interval_of(span_ms: int) -> int:
    """Return a usual interval in ms that cuts `span_ms` into at most 75 pieces; for long spans, whole days."""
    found = next((each for each in _INTERVALS if span_ms <= each * _MOST), None)
    return found or -(-span_ms // (_DAY * _MOST)) * _DAY
