"""How many dead letters are requeued in one transaction."""

from collections.abc import Iterable, Iterator

from notification_service.connectors.dead_letters.stored_dead_letter import StoredDeadLetter

MOST_AT_ONCE = 500
MOST_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Bounds the sum of the values in a portion. A single value that is longer forms a portion of its own."""


def portions(letters: Iterable[StoredDeadLetter]) -> Iterator[list[StoredDeadLetter]]:
    """Split the letters into portions and keep their order. The letter that reaches one of the two bounds ends its portion."""
    portion, size = list[StoredDeadLetter](), 0
    for each in letters:
        portion.append(each)
        size += len(each.value_to_requeue)
        if len(portion) == MOST_AT_ONCE or size >= MOST_BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
