"""The initial state of a partition: nothing is read, and no unit is known (docs/decisions/0062-the-initial-state.md).

Pure, but for the calls of a store. One commit begins: it sets the header back to the beginning of the log, and says that the
units go. From then on whoever opens the partition ends it before it reads anything: it removes the units, for which a storage
needs many steps, and a last commit says that they are gone. Each step may be repeated.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from guardian.partition_orders import PartitionOrders
from guardian.pending_output import outcome_record, to_pending
from resequencer.order import OrderOutcome
from resequencer.printable import counted
from resequencer.record import Partition
from resequencer.storage_port import Commit, Header, PartitionStore, Pending, UnitChange

_AT_ONCE = 500
"""How many units one read or commit has."""


class InitialPlan(NamedTuple):
    """What the initial state means for a partition: it is read again from `start` on, and was read up to `read_to`.

    `units` wait, with so many `envelopes`; all of these come again from the log. `gone` are envelopes that wait and that the log
    does not have any more: they would be lost.
    """

    partition: Partition
    start: int
    read_to: int
    units: int
    envelopes: int
    gone: int

    @property
    def refusal(self) -> str | None:
        """Why this partition may not be reset, and what to do; None if it may."""
        if self.start > self.read_to:
            return f"{self.partition}: the log begins at offset {self.start}, and records from {self.read_to} on were never read"
        if self.gone:
            return (
                f"{self.partition}: {counted(self.gone, 'envelope')} that wait are not in the log any more, and would be lost. "
                "Release their units, or wait for their deadlines"
            )
        return None

    def __str__(self) -> str:
        waits = f"{counted(self.units, 'waiting unit')} with {counted(self.envelopes, 'envelope')}"
        text = f"{self.partition} from offset {self.start} to {self.read_to} again, {waits} begin again"
        return f"{text}; what came before offset {self.start} is gone and does not come again" if self.start else text


def plan_initial_state(partition: Partition, store: PartitionStore, start: int, read_to: int) -> InitialPlan:
    """Look at what waits. `start` is where the log begins. Raises: as `PartitionStore.load`."""
    waiting = store.waiting()
    gone = 0
    for units in _chunks([unit for unit, _ in waiting]) if start else ():
        gone += sum(entry.offset < start for each in store.load(units).values() for entry in each.stash)
    return InitialPlan(partition, start, read_to, len(waiting), sum(waits.stashed for _, waits in waiting), gone)


def begin_initial_state(header: Header, start: int, attempt: str) -> Commit:
    """Return the commit that begins: it is the point of no return.

    Numbers continue, so that no sink passes over what comes again. All that comes of records below what was read is marked.
    Nothing may be pending.
    """
    orders, heal_offset = PartitionOrders.decode(header.orders), max(header.heal_offset, header.next_offset or 0)
    return replace(
        _unchanged(header, attempt), next_offset=start, heal_offset=heal_offset, orders=_said(orders, is_being_reset=True)
    )


def is_unfinished(header: Header) -> bool:
    """Whether the units of this partition are to be removed before it is read."""
    return PartitionOrders.decode(header.orders).is_being_reset


def end_initial_state(
    partition: Partition, store: PartitionStore, token: Callable[[], str], lost: Sequence[OrderOutcome] = ()
) -> None:
    """Remove all units, and then say that they are gone. `lost` are the outcomes of orders that end with their units.

    An idle unit goes as one that has expired, so those that wait are made idle first.

    Raises: as `PartitionStore.commit`.
    """
    for units in _chunks([unit for unit, _ in store.waiting()]):
        changes = tuple(
            UnitChange(unit, each.state, stash_removed=tuple(entry.offset for entry in each.stash))
            for unit, each in store.load(units).items()
        )
        store.commit(replace(_unchanged(store.header, token()), changes=changes))
    while store.expire(store.header.caught_up_ms, ()):
        pass
    header = store.header
    orders, first = PartitionOrders.decode(header.orders), header.highest_number + 1
    added: tuple[Pending, ...] = tuple(
        to_pending(outcome_record(number, each, partition, orders.heal_offset)) for number, each in enumerate(lost, first)
    )
    # Units that begin again are younger by the caught-up clock than those that are gone.
    ends = replace(_unchanged(header, token()), caught_up_ms=header.caught_up_ms + 1, orders=_said(orders, is_being_reset=False))
    store.commit(replace(ends, added=added, highest_number=header.highest_number + len(added)))


def _unchanged(header: Header, attempt: str) -> Commit:
    """A commit that changes nothing."""
    assert header.next_offset is not None, "a partition without a commit is in its initial state"
    return Commit(
        header.commit + 1,
        attempt,
        header.next_offset,
        header.highest_number,
        header.heal_offset,
        source=header.source,
        caught_up_ms=header.caught_up_ms,
        orders=header.orders,
    )


def _said(orders: PartitionOrders, *, is_being_reset: bool) -> str:
    return replace(orders, is_being_reset=is_being_reset).encode()


def _chunks(units: Sequence[str]) -> Sequence[Sequence[str]]:
    return [units[at : at + _AT_ONCE] for at in range(0, len(units), _AT_ONCE)]
