"""SEQUENCE: the documented order by a global and a local sequence."""

from domain.envelope import DataEnvelope
from resequencer.strategies.flows import last_of, with_last
from resequencer.strategies.port import Rank, StrategyState

_INTERVALS = 64
"""Given-up numbers are remembered as at most so many intervals per unit; the lowest are forgotten first."""


class Expectation(StrategyState, frozen=True, array_like=True):
    """`expectedNextGlobalSequence` and `observedSequencesPerFlow` of the seed, and the closed intervals of numbers given up."""

    expected: int = 1
    observed: tuple[tuple[str, int], ...] = ()
    given_up: tuple[tuple[int, int], ...] = ()


class Sequence:
    """Handles an envelope when `sequence <= expected` or `sequence <= the flow's last + 1` (seed 000).

    The seed's first two conditions are implied by these. Exact for one numbering shared by a unit's flows. With a numbering
    per flow it is as exact as the intake keeps each flow's own order.
    """

    name = "SEQUENCE"
    needs_sequence = True
    gathers = False
    state_type = Expectation

    def initial(self) -> Expectation:
        return Expectation()

    def rank(self, envelope: DataEnvelope) -> Rank:
        return Rank("", _number(envelope))

    def observe(self, state: Expectation, envelope: DataEnvelope) -> Expectation:  # noqa: ARG002 - only handling counts.
        return state

    def accepts(self, state: Expectation, envelope: DataEnvelope) -> bool:
        number = _number(envelope)
        return number <= state.expected or number <= last_of(state.observed, envelope.flow) + 1

    def handled(self, state: Expectation, envelope: DataEnvelope) -> Expectation:
        """The seed's counting, but a given-up number that comes late was counted when it was given up.

        Counting it again would let its successor's successor pass: 1 lost, 2 forced, 1 late, then 4 before 3.
        """
        number = _number(envelope)
        observed = with_last(state.observed, envelope.flow, number)
        if not state.given_up or not self.is_late(state, envelope):
            return Expectation(state.expected + 1, observed, state.given_up)
        return Expectation(state.expected, observed, _without(state.given_up, number))

    def forced(self, state: Expectation, envelope: DataEnvelope) -> Expectation:
        number = _number(envelope)
        observed = with_last(state.observed, envelope.flow, number)
        skipped = ((state.expected, number - 1),) if state.expected < number else ()
        given_up = (state.given_up + skipped)[-_INTERVALS:]
        return Expectation(max(state.expected + 1, number + 1), observed, given_up)

    def is_late(self, state: Expectation, envelope: DataEnvelope) -> bool:
        number = _number(envelope)
        return any(low <= number <= high for low, high in state.given_up)

    def missing(self, state: Expectation, envelope: DataEnvelope) -> str:  # noqa: ARG002 - the unit's number is meant.
        return f"sequence:{state.expected}"


def _without(intervals: tuple[tuple[int, int], ...], number: int) -> tuple[tuple[int, int], ...]:
    parts: list[tuple[int, int]] = []
    for low, high in intervals:
        if low <= number <= high:
            parts += [part for part in ((low, number - 1), (number + 1, high)) if part[0] <= part[1]]
        else:
            parts.append((low, high))
    return tuple(parts[-_INTERVALS:])


def _number(envelope: DataEnvelope) -> int:
    assert envelope.sequence is not None, "the decoder refuses a record without a sequence for this strategy"
    return envelope.sequence
