"""SEQUENCE: the documented order by a global and a local sequence number.

The documentation is the page "Resequencer" of Icon's IPF Notification Service (docs/design.md).

The last counted number is not always the last handled number, because dead letters are counted too. A second table lists the
flows that end in a dead letter, each with its highest handled number.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from resequencer.errors import PermanentError
from resequencer.event import Event
from resequencer.strategies.port import Rank, StrategyState

MAX_FLOWS = 256
"""The maximum of flows in a unit, which has a few. The table is part of the state, which is written with every change."""

LastPerFlow = tuple[tuple[str, int], ...]


number_of: Callable[[Event], int] = attrgetter("sequence")
"""Returns the sequence of an envelope. The decoder ensures that it exists if the strategy needs one."""


def last_of(table: LastPerFlow, flow: str, before: int = 0) -> int:
    """Return the highest counted number of this flow; `before`, which is one less than the first number, if there is none."""
    for name, last in table:
        if name == flow:
            return last
    return before


def with_last(table: LastPerFlow, flow: str, number: int) -> LastPerFlow:
    """Return the table with this number counted. A flow's last number never decreases."""
    for row, (name, last) in enumerate(table):
        if name == flow:
            return table if number <= last else (*table[:row], (flow, number), *table[row + 1 :])
    return (*table, (flow, number))


def handled_to(observed: LastPerFlow, dead_ends: LastPerFlow, flow: str, before: int = 0) -> int:
    """Return the highest handled number of this flow; `before` if there is none. Dead letters are not handled."""
    for name, highest in dead_ends:
        if name == flow:
            return highest
    return last_of(observed, flow, before)


def with_handled_to(observed: LastPerFlow, dead_ends: LastPerFlow, flow: str, highest: int) -> LastPerFlow:
    """Return the table of flows that end in a dead letter, after `highest` is the highest handled number of this flow."""
    others = tuple([each for each in dead_ends if each[0] != flow])
    return others if highest == last_of(observed, flow) else (*others, (flow, highest))


def refuse_one_too_many(table: LastPerFlow, flow: str) -> None:
    """Raise PermanentError for a new flow of a unit that has `MAX_FLOWS` already."""
    if all(name != flow for name, _ in table):
        raise PermanentError(f"flow {flow!r} would be number {len(table) + 1} of its unit; a unit may have {MAX_FLOWS} flows")


_INTERVALS = 64
"""The most intervals of given-up numbers per unit. A number of a dropped interval is handled without the mark `late`."""


class Expectation(StrategyState, frozen=True, array_like=True, gc=False):
    """`expectedNextGlobalSequence` and `observedSequencesPerFlow` as documented, and the closed intervals of given-up numbers.

    `dead_ends` lists the flows that end in a dead letter, each with its highest handled number. `handled_before` is the highest
    handled number of the last envelope's flow before that envelope was counted. `dead_lettered` goes back to it.
    """

    expected: int = 1
    observed: LastPerFlow = ()
    given_up: tuple[tuple[int, int], ...] = ()
    dead_ends: LastPerFlow = ()
    handled_before: int = 0


class _Numbered:
    """A strategy by numbers, which begin with `first`: 0 or 1. None: with that of the first event that comes.

    `name` identifies the states of the first number: they are not those of another.
    """

    name: str
    first = 1
    _before = 0
    _begins_anywhere = False

    def __init__(self, first: int | None = 1) -> None:
        if first != 1:
            self.name = f"{self.name}[first-sequence={'any' if first is None else first}]"
            self.first = 0 if first is None else first
            self._before, self._begins_anywhere = self.first - 1, first is None

    def observe(self, state: Any, envelope: Event) -> Any:
        """Return the state unchanged, because only handling counts. Refuse a flow beyond the limit: the state must stay small."""
        if len(state.observed) >= MAX_FLOWS:
            refuse_one_too_many(state.observed, envelope.flow)
        return state


class Sequence(_Numbered):
    """Handles an envelope when `sequence <= expected` or `sequence <= the flow's last + 1` (docs/design.md, section 5).

    These imply the other two documented conditions. The order is exact if the flows of a unit share one numbering. With a
    numbering per flow it is exact only if the input keeps the order of each flow. If the numbers begin with any, those below the
    first that came are given up.
    """

    name = "SEQUENCE"
    needs_sequence = True
    gathers = False
    state_type = Expectation

    def initial(self) -> Expectation:
        return Expectation(self.first, handled_before=self._before)

    def rank(self, envelope: Event) -> Rank:
        return Rank("", number_of(envelope))

    def accepts(self, state: Expectation, envelope: Event) -> bool:
        number = number_of(envelope)
        if number <= state.expected or number <= last_of(state.observed, envelope.flow, self._before) + 1:
            return True
        return self._begins_anywhere and not state.observed

    def step(self, state: Expectation, envelope: Event) -> tuple[Expectation, bool] | None:
        """Return `handled` and `is_late` if it `accepts` the envelope, else None. A state with given-up numbers is rare."""
        number, flow, observed, expected = number_of(envelope), envelope.flow, state.observed, state.expected
        is_only_flow = len(observed) == 1 and observed[0][0] == flow
        last = observed[0][1] if is_only_flow else last_of(observed, flow, self._before)
        if number > expected and number > last + 1:
            return (self.forced(state, envelope), False) if self._begins_anywhere and not observed else None
        if state.given_up or state.dead_ends:
            return self.handled(state, envelope), self.is_late(state, envelope)
        if number <= last:
            return Expectation(expected, observed, (), (), last), number < last
        observed = ((flow, number),) if is_only_flow else with_last(observed, flow, number)
        return Expectation(expected + 1, observed, (), (), last), False

    def handled(self, state: Expectation, envelope: Event) -> Expectation:
        """Count the envelope as documented, but each number only once.

        A number that was given up is counted already. A number at or below the last of its flow is repeated or was overtaken. To
        count it again would let 4 pass before 3: 1 is lost, 2 is forced, 1 comes late, then 4 is accepted.
        """
        if self._begins_anywhere and not state.observed:
            return self.forced(state, envelope)
        number, last = number_of(envelope), last_of(state.observed, envelope.flow, self._before)
        given_up = state.given_up and _without(state.given_up, number)
        counts = number > last and given_up is state.given_up
        return _counted(state, envelope, last, state.expected + counts, given_up)

    def forced(self, state: Expectation, envelope: Event) -> Expectation:
        number = number_of(envelope)
        skipped = ((state.expected, number - 1),) if state.expected < number else ()
        given_up = (state.given_up + skipped)[-_INTERVALS:]
        last = last_of(state.observed, envelope.flow, self._before)
        return _counted(state, envelope, last, max(state.expected + 1, number + 1), given_up)

    def skip(self, state: Expectation, envelope: Event) -> Expectation | None:
        """Return the state after the expected number was given up; None if the envelope does not wait for it."""
        if self.accepts(state, envelope):
            return None
        given_up = (*state.given_up, (state.expected, state.expected))[-_INTERVALS:]
        return Expectation(state.expected + 1, state.observed, given_up, state.dead_ends, state.handled_before)

    def dead_lettered(self, state: Expectation, envelope: Event) -> Expectation:
        """Return the state after a dead letter: successors do not wait for it, it may come again, and it was not handled."""
        number = number_of(envelope)
        given_up = (*_without(state.given_up, number), (number, number))[-_INTERVALS:]
        dead_ends = with_handled_to(state.observed, state.dead_ends, envelope.flow, state.handled_before)
        return Expectation(state.expected, state.observed, given_up, dead_ends, state.handled_before)

    def is_late(self, state: Expectation, envelope: Event) -> bool:
        """Whether a later number of its flow was handled; if its number was given up, a later number of any flow.

        The flows may have numberings of their own.
        """
        number = number_of(envelope)
        if number < handled_to(state.observed, state.dead_ends, envelope.flow, self._before):
            return True
        if not _is_in(state.given_up, number):
            return False
        return any(number < handled_to(state.observed, state.dead_ends, flow) for flow, _ in state.observed)

    def missing(self, state: Expectation, envelope: Event) -> str:  # noqa: ARG002 - the unit's number is meant.
        return f"sequence:{state.expected}"


def _counted(state: Expectation, envelope: Event, last: int, expected: int, given_up: tuple[tuple[int, int], ...]) -> Expectation:
    """Return the state with the envelope counted. `last` is the last number of its flow so far."""
    flow, number = envelope.flow, number_of(envelope)
    observed = with_last(state.observed, flow, number)
    if not state.dead_ends:
        return Expectation(expected, observed, given_up, (), last)
    before = handled_to(state.observed, state.dead_ends, flow, last)
    dead_ends = with_handled_to(observed, state.dead_ends, flow, max(before, number))
    return Expectation(expected, observed, given_up, dead_ends, before)


def _is_in(intervals: tuple[tuple[int, int], ...], number: int) -> bool:
    return bool(intervals) and any(low <= number <= high for low, high in intervals)


def _without(intervals: tuple[tuple[int, int], ...], number: int) -> tuple[tuple[int, int], ...]:
    """Return the intervals without this number; the same object if no interval has it."""
    if not _is_in(intervals, number):
        return intervals
    parts: list[tuple[int, int]] = []
    for low, high in intervals:
        if low <= number <= high:
            parts += [part for part in ((low, number - 1), (number + 1, high)) if part[0] <= part[1]]
        else:
            parts.append((low, high))
    return tuple(parts[-_INTERVALS:])


class Lasts(StrategyState, frozen=True, array_like=True):
    """The highest number of each flow that was handled or became a dead letter.

    `dead_ends` lists the flows that end in a dead letter, each with its highest handled number. `handled_before` is the highest
    handled number of the last envelope's flow before that envelope was counted. `dead_lettered` goes back to it.
    """

    observed: LastPerFlow = ()
    dead_ends: LastPerFlow = ()
    handled_before: int = 0


class StrictSequence(_Numbered):
    """Handles an envelope when `sequence <= the flow's last + 1`.

    For a numbering per flow. With a shared numbering most envelopes would wait until their deadline. If the numbers begin with
    any, each flow begins with its first event that comes.
    """

    name = "STRICT_SEQUENCE"
    needs_sequence = True
    gathers = False
    state_type = Lasts

    def initial(self) -> Lasts:
        return Lasts(handled_before=self._before)

    def rank(self, envelope: Event) -> Rank:
        return Rank(envelope.flow, number_of(envelope))

    def accepts(self, state: Lasts, envelope: Event) -> bool:
        return number_of(envelope) <= self._last_of(state, envelope) + 1

    def step(self, state: Lasts, envelope: Event) -> tuple[Lasts, bool] | None:
        """Return `handled` and `is_late` if it `accepts` the envelope, else None."""
        number, flow = number_of(envelope), envelope.flow
        last = self._last_of(state, envelope)
        if number > last + 1:
            return None
        if state.dead_ends:
            return self.handled(state, envelope), self.is_late(state, envelope)
        before = last_of(state.observed, flow, self._before) if self._begins_anywhere else last
        return Lasts(with_last(state.observed, flow, number), (), before), number < last

    def handled(self, state: Lasts, envelope: Event) -> Lasts:
        flow, number = envelope.flow, number_of(envelope)
        observed = with_last(state.observed, flow, number)
        before = handled_to(state.observed, state.dead_ends, flow, self._before)
        dead_ends = state.dead_ends and with_handled_to(observed, state.dead_ends, flow, max(before, number))
        return Lasts(observed, dead_ends, before)

    def forced(self, state: Lasts, envelope: Event) -> Lasts:
        return self.handled(state, envelope)

    def skip(self, state: Lasts, envelope: Event) -> Lasts | None:
        """Return the state after the next number of the envelope's flow was given up; None if the envelope does not wait."""
        if self.accepts(state, envelope):
            return None
        flow = envelope.flow
        before = handled_to(state.observed, state.dead_ends, flow, self._before)
        observed = with_last(state.observed, flow, last_of(state.observed, flow, self._before) + 1)
        return Lasts(observed, with_handled_to(observed, state.dead_ends, flow, before), state.handled_before)

    def dead_lettered(self, state: Lasts, envelope: Event) -> Lasts:
        """Return the state after a dead letter: successors do not wait for it, it is accepted again, and it was not handled."""
        dead_ends = with_handled_to(state.observed, state.dead_ends, envelope.flow, state.handled_before)
        return Lasts(state.observed, dead_ends, state.handled_before)

    def is_late(self, state: Lasts, envelope: Event) -> bool:
        return number_of(envelope) < handled_to(state.observed, state.dead_ends, envelope.flow, self._before)

    def missing(self, state: Lasts, envelope: Event) -> str:
        return f"sequence:{last_of(state.observed, envelope.flow, self._before) + 1}"

    def _last_of(self, state: Lasts, envelope: Event) -> int:
        """Return the last number of the event's flow. Any number may be the first of a flow if the numbers begin with any."""
        return last_of(state.observed, envelope.flow, number_of(envelope) - 1 if self._begins_anywhere else self._before)
