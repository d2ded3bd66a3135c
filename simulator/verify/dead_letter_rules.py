"""Which dead letters must be there, and which must not."""

from domain.dead_letter import DeadLetterReason
from simulator.expectation import ExpectedGarbage
from simulator.verify.observation import ObservedDeadLetter
from simulator.verify.order_rules import Rules
from simulator.verify.verdict import Deviation, Finding, Findings

_OF_SEQUENCE_STRATEGIES = frozenset({DeadLetterReason.NO_SEQUENCE.value, DeadLetterReason.INVALID_SEQUENCE.value})
"""A sequence that is missing or wrong is no fault where nothing is ordered by it."""

_At = tuple[int, int]
"""Partition and offset."""


class DeadLetterCheck:
    """Compares dead letters with what was written to become one, by source position; either may be told of first.

    Keeps in memory what is expected, and the position of each that came. Which of two came first says nothing: on topics they
    may be in two partitions. One that was requeued and died again was judged when it died first, where it had been written.
    """

    def __init__(self, rules: Rules) -> None:
        self._needs_sequence = rules.needs_sequence
        self._expected: dict[_At, ExpectedGarbage] = {}
        self._early: dict[_At, list[ObservedDeadLetter]] = {}
        self._came: set[_At] = set()
        self._unmarked: set[_At] = set()
        self.count = 0

    @property
    def outstanding(self) -> int:
        """Those that must come and have not, and those that came and are not expected so far."""
        return sum(map(self._is_due, self._expected.values())) + len(self._early)

    def expect(self, garbage: ExpectedGarbage, findings: Findings) -> None:
        position = (garbage.partition, garbage.offset)
        if position in self._came:
            return
        self._expected[position] = garbage
        for letter in self._early.pop(position, ()):
            self._compare(position, letter, findings)

    def came(self, letter: ObservedDeadLetter, findings: Findings) -> None:
        self.count += 1
        if letter.position is None:
            findings.add(_unexpected("no source position", letter))
        elif letter.is_requeued:
            self._count_once(letter.position, letter, findings)
        elif letter.position in self._came or letter.position in self._expected:
            self._compare(letter.position, letter, findings)
        else:
            self._early.setdefault(letter.position, []).append(letter)

    def refuse_early(self, findings: Findings) -> None:
        """All that is expected was told of."""
        for position, letters in self._early.items():
            for letter in letters:
                findings.add(_unexpected(_where(position), letter))
        self._early.clear()

    def end(self, findings: Findings) -> None:
        """All dead letters came, too."""
        self.refuse_early(findings)
        for position, expected in self._expected.items():
            if self._is_due(expected):
                what = f"garbage ({expected.kind}) without its {expected.reason}"
                findings.add(Finding(Deviation.DEAD_LETTER_MISSING, _where(position), what))

    def _compare(self, position: _At, letter: ObservedDeadLetter, findings: Findings) -> None:
        self._count_once(position, letter, findings)
        if position in self._came:
            return
        self._came.add(position)
        expected = self._expected.pop(position)
        if letter.reason != expected.reason:
            what = f"{letter.reason}, not {expected.reason} ({expected.kind})"
            findings.add(Finding(Deviation.DEAD_LETTER_WRONG_REASON, _where(position), what))

    def _count_once(self, position: _At, letter: ObservedDeadLetter, findings: Findings) -> None:
        if letter.is_possible_duplicate:
            return
        if position in self._unmarked:
            findings.add(Finding(Deviation.DEAD_LETTER_DOUBLED, _where(position), f"{letter.reason} came again"))
        self._unmarked.add(position)

    def _is_due(self, expected: ExpectedGarbage) -> bool:
        return self._needs_sequence or expected.reason not in _OF_SEQUENCE_STRATEGIES


def _unexpected(where: str, letter: ObservedDeadLetter) -> Finding:
    return Finding(Deviation.DEAD_LETTER_UNEXPECTED, where, f"{letter.reason}, where no garbage was written")


def _where(position: _At) -> str:
    return f"partition {position[0]} at {position[1]}"
