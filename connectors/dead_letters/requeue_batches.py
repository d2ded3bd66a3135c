"""So many dead letters as are requeued together."""

from collections.abc import Iterable, Iterator

from connectors.dead_letters.stored_dead_letter import StoredDeadLetter

MOST_AT_ONCE = 500
MOST_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Of their values; one that is longer goes alone."""


def portions(letters: Iterable[StoredDeadLetter]) -> Iterator[list[StoredDeadLetter]]:
    """In the same order. A portion is full with the letter that reaches one of the two."""
    portion, size = list[StoredDeadLetter](), 0
    for each in letters:
        portion.append(each)
        size += len(each.letter.record.value)
        if len(portion) == MOST_AT_ONCE or size >= MOST_BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
