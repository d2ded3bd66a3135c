"""Checks dead letters: those that must exist, and those that must not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from notification_service.jobs.audit.finding import Deviation, Finding
from notification_service.jobs.audit.observed import ObservedDeadLetter


class ExpectedDeadLetter(NamedTuple):
    """The dead letter of the record at `offset`. It must exist once all records up to `trigger` are settled.

    `digest` is that of the record's bytes.
    """

    offset: int
    trigger: int
    reason: str
    error: str
    digest: bytes


def dead_letter_findings(
    unit: str | None,
    partition: int,
    expected: Iterable[ExpectedDeadLetter],
    seen: Mapping[int, Sequence[ObservedDeadLetter]],
    settled: int,
) -> Iterator[Finding]:
    """Compare expected dead letters with those seen, by their records' offsets. Letters due from `settled` on may still come."""
    known = set[int]()
    for letter in expected:
        known.add(letter.offset)
        letters = seen.get(letter.offset, ())
        if letters:
            yield from _differences(unit, partition, letter, letters)
        elif letter.trigger < settled:
            what = f"the record had to become a dead letter ({letter.reason}: {letter.error}), but there is none"
            yield Finding(Deviation.DEAD_LETTER_MISSING, unit, partition, letter.offset, what)
    for offset, letters in seen.items():
        if offset not in known:
            what = f"there is a dead letter ({letters[0].reason}), but no record at its position had to become one"
            yield Finding(Deviation.DEAD_LETTER_UNEXPLAINED, unit, partition, offset, what)


def _differences(
    unit: str | None, partition: int, expected: ExpectedDeadLetter, letters: Sequence[ObservedDeadLetter]
) -> Iterator[Finding]:
    first, offset = letters[0], expected.offset
    if first.reason != expected.reason:
        what = f"the dead letter has the reason {first.reason}, but the record's is {expected.reason}"
        yield Finding(Deviation.DEAD_LETTER_WRONG_REASON, unit, partition, offset, what)
    if first.digest is not None and first.digest != expected.digest:
        yield Finding(Deviation.DEAD_LETTER_CHANGED, unit, partition, offset, "the dead letter has other bytes than the record")
    if sum(not each.is_possible_duplicate for each in letters) > 1:
        yield Finding(Deviation.DEAD_LETTER_DOUBLED, unit, partition, offset, "the dead letter was sent more than once")
