"""Checks dead letters: those that must exist, and those that must not."""

from collections.abc import Set

from notification_service.simulator.expectation import ExpectedGarbage
from notification_service.simulator.verify.observation import ObservedDeadLetter
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation, Finding, Findings
from resequencer.dead_letter import DeadLetterReason

_OF_SEQUENCE_STRATEGIES = frozenset({DeadLetterReason.NO_SEQUENCE.value, DeadLetterReason.INVALID_SEQUENCE.value})
"""A missing or wrong sequence is no fault for a strategy that does not order by it."""

_At = tuple[int, int]
"""A partition and an offset."""


class DeadLetterCheck:
    """Compares dead letters with the garbage that was written, by source position. The two may be added in any order.

    Memory holds the expectations and the position of each dead letter that came. The order of dead letters is not checked,
    because on topics they may be in two partitions. A record that was requeued and became a dead letter again was checked the
    first time, at the position where it was written.
    """

    def __init__(self, rules: Rules) -> None:
        self._needs_sequence = rules.needs_sequence
        self._expected: dict[_At, ExpectedGarbage] = {}
        self._early: dict[_At, list[ObservedDeadLetter]] = {}
        self._came: set[_At] = set()
        self._unmarked: set[_At] = set()
        self._ordered: set[_At] = set()
        self.count = 0

    @property
    def outstanding(self) -> int:
        """The number of dead letters still to come, plus those that came and are not yet expected."""
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
        elif letter.reason == DeadLetterReason.ORDERED:
            self._count_once(letter.position, letter, findings)
            self._ordered.add(letter.position)
        elif letter.is_requeued:
            self._count_once(letter.position, letter, findings)
        elif letter.position in self._came or letter.position in self._expected:
            self._compare(letter.position, letter, findings)
        else:
            self._early.setdefault(letter.position, []).append(letter)

    def refuse_early(self, findings: Findings) -> None:
        """Report the dead letters that nothing explains, after all expectations were added."""
        for position, letters in self._early.items():
            for letter in letters:
                findings.add(_unexpected(_where(position), letter))
        self._early.clear()

    def differing_orders(self, done: Set[_At]) -> int:
        """Return in how many positions the dead letters that came and the orders that were done differ."""
        return len(self._ordered ^ done)

    def end_orders(self, done: Set[_At], findings: Findings) -> None:
        """Compare the dead letters that operators ordered with the positions that orders which were done name."""
        for position in sorted(self._ordered - done):
            what = "it became a dead letter because of an order, but no such order was done"
            findings.add(Finding(Deviation.DEAD_LETTER_WITHOUT_ORDER, _where(position), what))
        for position in sorted(done - self._ordered):
            what = "an order was done that makes it a dead letter, but there is none"
            findings.add(Finding(Deviation.DEAD_LETTER_MISSING, _where(position), what))

    def end(self, findings: Findings) -> None:
        """Report missing dead letters too, after all of them were added."""
        self.refuse_early(findings)
        for position, expected in self._expected.items():
            if self._is_due(expected):
                what = f"no dead letter {expected.reason} for garbage ({expected.kind})"
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
            findings.add(Finding(Deviation.DEAD_LETTER_DOUBLED, _where(position), f"{letter.reason} was sent more than once"))
        self._unmarked.add(position)

    def _is_due(self, expected: ExpectedGarbage) -> bool:
        return self._needs_sequence or expected.reason not in _OF_SEQUENCE_STRATEGIES


def _unexpected(where: str, letter: ObservedDeadLetter) -> Finding:
    return Finding(Deviation.DEAD_LETTER_UNEXPECTED, where, f"{letter.reason}, but no garbage was written there")


def _where(position: _At) -> str:
    return f"partition {position[0]} at {position[1]}"
