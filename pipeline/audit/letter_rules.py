"""Which dead letters must be there, and which must not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from domain.dead_letter import DeadLetter
from pipeline.audit.course import Emission
from pipeline.audit.finding import Deviation, Finding
from pipeline.audit.seen import SeenLetter, digest_of


def letter_findings(
    unit: str | None,
    partition: int,
    expected: Iterable[Emission],
    seen: Mapping[int, Sequence[SeenLetter]],
    settled: int,
) -> Iterator[Finding]:
    """By the offset of the record. What follows from records at or beyond `settled` may still come."""
    known = set[int]()
    for emission in expected:
        letter = emission.made
        assert isinstance(letter, DeadLetter)
        known.add(emission.offset)
        letters = seen.get(emission.offset, ())
        if letters:
            yield from _differences(unit, partition, emission.offset, letter, letters)
        elif emission.trigger < settled:
            what = f"the record was to be set aside ({letter.reason}: {letter.error}), and no dead letter is there"
            yield Finding(Deviation.DEAD_LETTER_MISSING, unit, partition, emission.offset, what)
    for offset, letters in seen.items():
        if offset not in known:
            what = f"a dead letter says {letters[0].reason}, and nothing is wrong with a record that lies there"
            yield Finding(Deviation.DEAD_LETTER_UNEXPLAINED, unit, partition, offset, what)


def _differences(
    unit: str | None, partition: int, offset: int, expected: DeadLetter, letters: Sequence[SeenLetter]
) -> Iterator[Finding]:
    first = letters[0]
    if first.reason != expected.reason:
        what = f"the dead letter says {first.reason}, the record is {expected.reason}"
        yield Finding(Deviation.DEAD_LETTER_WRONG_REASON, unit, partition, offset, what)
    if first.digest is not None and first.digest != digest_of(expected.record.value):
        yield Finding(Deviation.DEAD_LETTER_CHANGED, unit, partition, offset, "the dead letter holds other bytes than the record")
    if sum(not each.is_possible_duplicate for each in letters) > 1:
        yield Finding(Deviation.DEAD_LETTER_DOUBLED, unit, partition, offset, "the dead letter came again")
