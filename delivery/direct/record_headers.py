"""The headers that a record gets on its way through retry topics (docs/contract.md). Pure."""

from typing import NamedTuple

from domain.clock import Instant, instant_of, instant_text
from domain.headers import (
    DELIVERY_ATTEMPTS,
    DELIVERY_BACK_OFF,
    DELIVERY_ERROR,
    DELIVERY_ID,
    DELIVERY_SOURCE_POSITION,
    DELIVERY_SUBMITTED_AT,
    texts_of,
)
from domain.record import Headers, Origin, Record

_OF_THE_WAY = frozenset({DELIVERY_SUBMITTED_AT, DELIVERY_BACK_OFF, DELIVERY_SOURCE_POSITION, DELIVERY_ATTEMPTS, DELIVERY_ERROR})
_LONGEST_ERROR = 1_000
_MOST_DIGITS = 9


class Way(NamedTuple):
    """What the headers tell of a record: its place in the source, the failed calls, and when it was moved here, if it was."""

    origin: Origin
    attempts: int = 0
    submitted_at: Instant | None = None


def way_of(record: Record) -> Way:
    """Return what the headers tell. A record whose headers another program wrote begins anew, where it is."""
    texts = texts_of(record.headers)
    try:
        origin = Origin.find(texts[DELIVERY_SOURCE_POSITION])
        attempts = texts[DELIVERY_ATTEMPTS]
        if len(attempts) > _MOST_DIGITS:
            return Way(record.origin)
        return Way(origin or record.origin, int(attempts), instant_of(texts[DELIVERY_SUBMITTED_AT]))
    except (KeyError, ValueError):
        return Way(record.origin)


def moved_headers(headers: Headers, way: Way, delivery_id: str, delay_ms: int, error: str, now: Instant) -> Headers:
    """Return the headers of the record in the next retry topic. `way.attempts` are the failed calls so far."""
    return (
        *own_headers(headers, delivery_id),
        (DELIVERY_SUBMITTED_AT, instant_text(now).encode()),
        (DELIVERY_BACK_OFF, str(delay_ms).encode()),
        (DELIVERY_SOURCE_POSITION, str(way.origin).encode()),
        (DELIVERY_ATTEMPTS, str(way.attempts).encode()),
        (DELIVERY_ERROR, error[:_LONGEST_ERROR].encode("utf-8", "replace")),
    )


def own_headers(headers: Headers, delivery_id: str) -> Headers:
    """Return the headers that the record had in the source, and its idempotency key: a requeued record keeps that."""
    own = tuple((name, value) for name, value in headers if name not in _OF_THE_WAY and name != DELIVERY_ID)
    return (*own, (DELIVERY_ID, delivery_id.encode()))
