"""SEQUENCE: the documented order by a global and a local sequence."""

from domain.envelope import DataEnvelope
from resequencer.strategies.flows import last_of, number_of, refuse_one_too_many, with_last
from resequencer.strategies.port import Rank, StrategyState

_INTERVALS = 64
"""Given-up numbers are remembered as at most so many intervals per unit. One that was forgotten is handled without its mark."""


class Expectation(StrategyState, frozen=True, array_like=True, gc=False):
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
        return Rank("", number_of(envelope))

    def observe(self, state: Expectation, envelope: DataEnvelope) -> Expectation:
        """Only handling counts. A unit of too many flows is refused one more: its state must stay small."""
        refuse_one_too_many(state.observed, envelope.flow)
        return state

    def accepts(self, state: Expectation, envelope: DataEnvelope) -> bool:
        number = number_of(envelope)
        return number <= state.expected or number <= last_of(state.observed, envelope.flow) + 1

    def handled(self, state: Expectation, envelope: DataEnvelope) -> Expectation:
        """The seed's counting, but a number counts once: not when it was counted as given up, nor when it comes again.

        Counting it again would let its successor's successor pass: 1 lost, 2 forced, 1 late, then 4 before 3.
        """
        number = number_of(envelope)
        given_up = _without(state.given_up, number)
        counts = number > last_of(state.observed, envelope.flow) and given_up is state.given_up
        observed = with_last(state.observed, envelope.flow, number)
        return Expectation(state.expected + counts, observed, given_up)

    def forced(self, state: Expectation, envelope: DataEnvelope) -> Expectation:
        number = number_of(envelope)
        observed = with_last(state.observed, envelope.flow, number)
        skipped = ((state.expected, number - 1),) if state.expected < number else ()
        given_up = (state.given_up + skipped)[-_INTERVALS:]
        return Expectation(max(state.expected + 1, number + 1), observed, given_up)

    def buried(self, state: Expectation, envelope: DataEnvelope) -> Expectation:
        number = number_of(envelope)
        given_up = (*_without(state.given_up, number), (number, number))[-_INTERVALS:]
        return Expectation(state.expected, state.observed, given_up)

    def is_late(self, state: Expectation, envelope: DataEnvelope) -> bool:
        if not state.given_up:
            return False
        number = number_of(envelope)
        return number + 1 < state.expected and _is_in(state.given_up, number)

    def missing(self, state: Expectation, envelope: DataEnvelope) -> str:  # noqa: ARG002 - the unit's number is meant.
        return f"sequence:{state.expected}"


def _is_in(intervals: tuple[tuple[int, int], ...], number: int) -> bool:
    return bool(intervals) and any(low <= number <= high for low, high in intervals)


def _without(intervals: tuple[tuple[int, int], ...], number: int) -> tuple[tuple[int, int], ...]:
    """The intervals without this number; the same object if it is in none."""
    if not _is_in(intervals, number):
        return intervals
    parts: list[tuple[int, int]] = []
    for low, high in intervals:
        if low <= number <= high:
            parts += [part for part in ((low, number - 1), (number + 1, high)) if part[0] <= part[1]]
        else:
            parts.append((low, high))
    return tuple(parts[-_INTERVALS:])
