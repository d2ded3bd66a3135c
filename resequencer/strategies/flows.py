"""The numbers of flows: an envelope's own, and the last of each flow as an immutable table of a few rows.

The last number that was counted is not always the last that was handled: a dead letter is counted, too. A second table, of
the flows that end in a dead letter, has the highest number that was handled of each of them.
"""

from collections.abc import Callable
from operator import attrgetter

from domain.envelope import DataEnvelope
from domain.errors import PermanentError

MOST_FLOWS = 256
"""A payment has two or three; the table is part of the state that is written with every change."""

LastPerFlow = tuple[tuple[str, int], ...]


number_of: Callable[[DataEnvelope], int] = attrgetter("sequence")
"""Its sequence, which the decoder makes sure of for a strategy that needs one."""


def last_of(table: LastPerFlow, flow: str) -> int:
    """The highest number counted of this flow, 0 before the first."""
    for name, last in table:
        if name == flow:
            return last
    return 0


def with_last(table: LastPerFlow, flow: str, number: int) -> LastPerFlow:
    """The table with this number counted; a flow's last never goes back."""
    for row, (name, last) in enumerate(table):
        if name == flow:
            return table if number <= last else (*table[:row], (flow, number), *table[row + 1 :])
    return (*table, (flow, number))


def handled_to(observed: LastPerFlow, dead_ends: LastPerFlow, flow: str) -> int:
    """The highest number of this flow that was handled, 0 before the first. Dead letters do not count."""
    for name, highest in dead_ends:
        if name == flow:
            return highest
    return last_of(observed, flow)


def with_handled_to(observed: LastPerFlow, dead_ends: LastPerFlow, flow: str, highest: int) -> LastPerFlow:
    """The flows that end in a dead letter, if `highest` is the highest number handled of this one."""
    others = tuple([each for each in dead_ends if each[0] != flow])
    return others if highest == last_of(observed, flow) else (*others, (flow, highest))


def refuse_one_too_many(table: LastPerFlow, flow: str) -> None:
    """Raises PermanentError for a new flow of a unit that has `MOST_FLOWS` already."""
    if len(table) >= MOST_FLOWS and last_of(table, flow) == 0:
        raise PermanentError(f"flow {flow!r} would be the unit's {len(table) + 1}th; a unit may have {MOST_FLOWS}")
