"""The sequence numbers of flows: an envelope's own, and the last of each flow as an immutable table of a few rows.

The last counted number is not always the last handled number, because dead letters are counted too. A second table lists the
flows that end in a dead letter, each with its highest handled number.
"""

from collections.abc import Callable
from operator import attrgetter

from resequencer.envelope import DataEnvelope
from resequencer.errors import PermanentError

MOST_FLOWS = 256
"""The most flows of a unit. A payment has two or three. The table is part of the state, which is written with every change."""

LastPerFlow = tuple[tuple[str, int], ...]


number_of: Callable[[DataEnvelope], int] = attrgetter("sequence")
"""Returns the sequence of an envelope. The decoder ensures that it exists if the strategy needs one."""


def last_of(table: LastPerFlow, flow: str) -> int:
    """Return the highest counted number of this flow, 0 before the first."""
    for name, last in table:
        if name == flow:
            return last
    return 0


def with_last(table: LastPerFlow, flow: str, number: int) -> LastPerFlow:
    """Return the table with this number counted. A flow's last number never decreases."""
    for row, (name, last) in enumerate(table):
        if name == flow:
            return table if number <= last else (*table[:row], (flow, number), *table[row + 1 :])
    return (*table, (flow, number))


def handled_to(observed: LastPerFlow, dead_ends: LastPerFlow, flow: str) -> int:
    """Return the highest handled number of this flow, 0 before the first. Dead letters are not handled."""
    for name, highest in dead_ends:
        if name == flow:
            return highest
    return last_of(observed, flow)


def with_handled_to(observed: LastPerFlow, dead_ends: LastPerFlow, flow: str, highest: int) -> LastPerFlow:
    """Return the table of flows that end in a dead letter, after `highest` is the highest handled number of this flow."""
    others = tuple([each for each in dead_ends if each[0] != flow])
    return others if highest == last_of(observed, flow) else (*others, (flow, highest))


def refuse_one_too_many(table: LastPerFlow, flow: str) -> None:
    """Raise PermanentError for a new flow of a unit that has `MOST_FLOWS` already."""
    if last_of(table, flow) == 0:
        raise PermanentError(f"flow {flow!r} would be number {len(table) + 1} of its unit; a unit may have {MOST_FLOWS} flows")
