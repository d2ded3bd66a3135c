"""Faults of the code that executes orders, as mutations of the real code."""

from collections.abc import Sequence
from typing import Any

from harness.planted.protocol import Patch
from msgspec.structs import replace

from guardian.partition_orders import PartitionOrders, TakenOrders, take_orders
from guardian.partitions import Partitions
from guardian.ports import OrderRecord
from guardian.takeover import Takeover
from guardian.unit_registry import UnitRegistry
from resequencer.batch import UnitKey
from resequencer.clock import Instant
from resequencer.order import OrderOutcome
from resequencer.record import Partition
from resequencer.storage_port import Commit, Header, WaitKind, Waits
from resequencer.turn.orders import Ended, end_waiting_order
from resequencer.turn.turn import Turn
from resequencer.unit import Ordered
from storage.fencing import LastCommit
from storage.fencing import is_done as right_is_done


def order_executed_again_after_a_takeover(patch: Patch) -> None:
    """How far the orders are executed is not stored with their effects."""
    patch.setattr(PartitionOrders, "encode", lambda _: "")


def order_lost_at_a_takeover(patch: Patch) -> None:
    """The next owner begins at the end of the log, as a program that was not there before."""

    def faulty(self: Partitions, partition: Partition, header: Header, plan: Takeover) -> Takeover:
        known = right(self, partition, header, plan)
        return replace(known, orders=replace(known.orders, next_offset=self._orders.bounds(partition).stop))

    right = Partitions._with_orders
    patch.setattr(Partitions, "_with_orders", faulty)


def order_executed_by_a_zombie(patch: Patch) -> None:
    """A commit with orders is stored without a comparison."""

    def is_done(stored: LastCommit, header: Header, commit: Commit) -> bool:
        return False if commit.orders != header.orders else right_is_done(stored, header, commit)

    patch.setattr("storage.none.is_done", is_done)


def order_executed_though_its_unit_has_changed(patch: Patch) -> None:
    patch.setattr("resequencer.turn.orders._refuse_changed", lambda *_: None)


def order_forgotten_after_a_heal(patch: Patch) -> None:
    """No outcome tells of the orders that the storage has lost."""

    def faulty(_: Sequence[OrderRecord], __: int, ___: Instant) -> tuple[OrderOutcome, ...]:
        return ()

    patch.setattr("guardian.partitions.lost_by_heal", faulty)


def outcome_published_twice(patch: Patch) -> None:
    def faulty(*arguments: Any, **named: Any) -> TakenOrders:
        taken = take_orders(*arguments, **named)
        return taken._replace(outcomes=[*taken.outcomes, *taken.outcomes])

    patch.setattr("guardian.cycle.take_orders", faulty)


def hold_forgotten_when_its_unit_leaves_memory(patch: Patch) -> None:
    patch.setattr("resequencer.unit_codec._hold", lambda _: None)


def waiting_order_forgotten_when_its_unit_leaves_memory(patch: Patch) -> None:
    patch.setattr("resequencer.unit_codec._ordered", lambda _: None)


def waiting_order_stays_in_its_unit(patch: Patch) -> None:
    """It is executed or refused, and is still there for the next turn."""

    def faulty(turn: Turn, waiting: Ordered, ended: Ended | None) -> None:
        right(turn, waiting, ended)
        turn.unit.amend(waiting_order=waiting)

    right = end_waiting_order
    patch.setattr("resequencer.turn.orders.end_waiting_order", faulty)


def waiting_order_not_asked_for_after_a_takeover(patch: Patch) -> None:
    """The next owner does not look up what the order waits for, and executes it only when its time is over, or never."""

    def faulty(self: UnitRegistry, key: UnitKey, waits: Waits) -> None:
        if waits.kind is WaitKind.ORDERED:
            self._timers.arm(key, waits.wakes_at)
        else:
            right(self, key, waits)

    right = UnitRegistry._set_timer
    patch.setattr(UnitRegistry, "_set_timer", faulty)
