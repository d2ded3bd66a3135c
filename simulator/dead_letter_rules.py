"""Which dead letters must be there, and which must not."""

from collections.abc import Iterable

from domain.dead_letter import DeadLetterReason
from simulator.expectation import ExpectedGarbage
from simulator.observation import ObservedDeadLetter
from simulator.order_rules import Rules
from simulator.verdict import Deviation, Finding, Findings

_OF_SEQUENCE_STRATEGIES = frozenset({DeadLetterReason.NO_SEQUENCE.value, DeadLetterReason.INVALID_SEQUENCE.value})
"""A sequence that is missing or wrong is no fault where nothing is ordered by it."""


class DeadLetterCheck:
    """Compares dead letters with the garbage that was written, by source position. Keeps all the garbage in memory."""

    def __init__(self, garbage: Iterable[ExpectedGarbage], rules: Rules) -> None:
        self._garbage = {(each.partition, each.offset): each for each in garbage}
        self._needs_sequence = rules.needs_sequence
        self._came: set[tuple[int, int]] = set()
        self.count = 0

    def came(self, letter: ObservedDeadLetter, findings: Findings) -> None:
        self.count += 1
        expected = self._garbage.get(letter.position) if letter.position else None
        if letter.position is None or expected is None:
            where = _where(letter.position) if letter.position else "no source position"
            findings.add(Finding(Deviation.DEAD_LETTER_UNEXPECTED, where, f"{letter.reason}, where no garbage was written"))
            return
        if letter.position in self._came and not letter.is_possible_duplicate:
            findings.add(Finding(Deviation.DEAD_LETTER_DOUBLED, _where(letter.position), f"{letter.reason} came again"))
        self._came.add(letter.position)
        if letter.reason != expected.reason:
            what = f"{letter.reason}, not {expected.reason} ({expected.kind})"
            findings.add(Finding(Deviation.DEAD_LETTER_WRONG_REASON, _where(letter.position), what))

    def end(self, findings: Findings) -> None:
        """All dead letters came."""
        for position, expected in self._garbage.items():
            is_due = self._needs_sequence or expected.reason not in _OF_SEQUENCE_STRATEGIES
            if is_due and position not in self._came:
                what = f"garbage ({expected.kind}) without its {expected.reason}"
                findings.add(Finding(Deviation.DEAD_LETTER_MISSING, _where(position), what))


def _where(position: tuple[int, int]) -> str:
    return f"partition {position[0]} at {position[1]}"
