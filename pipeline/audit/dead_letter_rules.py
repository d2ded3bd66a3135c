"""Which dead letters must be there, and which must not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipeline.audit.finding import Deviation, Finding
from pipeline.audit.observed import ObservedDeadLetter


class ExpectedDeadLetter(NamedTuple):
    """Of the record at the offset; to be there once everything up to `trigger` is settled. `digest` is that of its bytes."""

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
    """By the offset of the record. What follows from records at or beyond `settled` may still come."""
    known = set[int]()
    for letter in expected:
        known.add(letter.offset)
        letters = seen.get(letter.offset, ())
        if letters:
            yield from _differences(unit, partition, letter, letters)
        elif letter.trigger < settled:
            what = f"the record was to be set aside ({letter.reason}: {letter.error}), and no dead letter is there"
            yield Finding(Deviation.DEAD_LETTER_MISSING, unit, partition, letter.offset, what)
    for offset, letters in seen.items():
        if offset not in known:
            what = f"a dead letter says {letters[0].reason}, and nothing is wrong with a record that lies there"
            yield Finding(Deviation.DEAD_LETTER_UNEXPLAINED, unit, partition, offset, what)


def _differences(
    unit: str | None, partition: int, expected: ExpectedDeadLetter, letters: Sequence[ObservedDeadLetter]
) -> Iterator[Finding]:
    first, offset = letters[0], expected.offset
    if first.reason != expected.reason:
        what = f"the dead letter says {first.reason}, the record is {expected.reason}"
        yield Finding(Deviation.DEAD_LETTER_WRONG_REASON, unit, partition, offset, what)
    if first.digest is not None and first.digest != expected.digest:
        yield Finding(Deviation.DEAD_LETTER_CHANGED, unit, partition, offset, "the dead letter holds other bytes than the record")
    if sum(not each.is_possible_duplicate for each in letters) > 1:
        yield Finding(Deviation.DEAD_LETTER_DOUBLED, unit, partition, offset, "the dead letter came again")
