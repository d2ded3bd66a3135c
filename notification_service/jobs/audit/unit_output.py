"""The output of one unit."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import replace

from notification_service.jobs.audit.observed import ObservedDeadLetter, ObservedNotification
from notification_service.judgement.order_check import HELD
from resequencer.clock import Instant
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult

_REPLAYED = frozenset({OrderKind.RELEASE, OrderKind.SKIP, OrderKind.DEAD_LETTER, OrderKind.RESUME})


class Act(NamedTuple):
    """An order that a replay executes between two arrivals.

    A replay that does not execute one that `is_certain` cannot be right. The others may have had no effect, or it is unknown
    whether they were executed.
    """

    order: Order
    is_certain: bool


def acts_of(outcomes: Iterable[OrderOutcome]) -> tuple[Act, ...]:
    """Return the acts in the order of their instants. The end of a hold is an act of its own, a resume."""
    acts = dict[tuple[int, int, int], Act]()
    for each in outcomes:
        order, offset = each.order, each.order_offset
        if order is None:
            continue
        if order.kind in _REPLAYED and each.result in (OrderResult.DONE, OrderResult.LOST_BY_HEAL):
            is_certain = each.result is OrderResult.DONE and order.kind in (OrderKind.RELEASE, OrderKind.SKIP)
            acts.setdefault((each.at, offset, 0), Act(order, is_certain))
        elif each.result in HELD:
            acts[order.at, offset, 0] = Act(order, is_certain=False)
            acts[each.at, offset, 1] = Act(replace(order, kind=OrderKind.RESUME), is_certain=False)
    return tuple(act for _, act in sorted(acts.items(), key=lambda each: each[0]))


def longer_by_ms(outcomes: Iterable[OrderOutcome], open_holds: Iterable[Order]) -> int:
    """Return how much longer than usual the unit may have waited, in milliseconds, because of holds and other deadlines."""
    longer_ms = sum(each.for_ms or 0 for each in open_holds)
    for each in outcomes:
        order = each.order
        if order is not None and each.result in HELD:
            longer_ms += max(0, each.at - order.at)
        elif order is not None and order.until is not None and each.result is OrderResult.DONE:
            longer_ms += max(0, order.until - each.at)
    return longer_ms


class UnitOutput:
    """`notifications` are in the order of publishing, `dead_letters` by the offset of their record.

    `incomplete` holds the offsets of notifications marked incomplete. `released` holds their ids by the instant of their making
    and by whether an order released them; those of one release agree in both. `outcomes` are those of the unit's orders by the
    offset of the order, `holds` all its orders to hold it.
    """

    def __init__(self) -> None:
        self.notifications: list[ObservedNotification] = []
        self.dead_letters: dict[int, list[ObservedDeadLetter]] = {}
        self.versions: set[str | None] = set()
        self.has_possible_duplicates = False
        self.incomplete: set[int] = set()
        self.released: dict[tuple[Instant, bool], set[str]] = {}
        self.outcomes: dict[int, OrderOutcome] = {}
        self.holds: list[Order] = []
        self._by_id: dict[str, ObservedNotification] = {}
        self._by_offset: dict[int, ObservedNotification] = {}

    def add(self, seen: ObservedNotification) -> None:
        """Add a notification. If several have one id, the first that is not marked as a possible duplicate counts."""
        self.notifications.append(seen)
        self.versions.add(seen.version)
        self.has_possible_duplicates |= seen.is_possible_duplicate
        if seen.incomplete is not None:
            self.incomplete.add(seen.offset)
            if seen.created_at is not None:
                self.released.setdefault((seen.created_at, seen.is_ordered), set()).add(seen.notification_id)
        known = self._by_id.get(seen.notification_id)
        if known is None or (known.is_possible_duplicate and not seen.is_possible_duplicate):
            self._by_id[seen.notification_id] = seen
        self._by_offset.setdefault(seen.offset, seen)

    @property
    def count(self) -> int:
        """The number of different notifications."""
        return len(self._by_id)

    def add_dead_letter(self, offset: int, dead_letter: ObservedDeadLetter) -> None:
        self.dead_letters.setdefault(offset, []).append(dead_letter)

    def add_outcome(self, outcome: OrderOutcome) -> None:
        """Add an outcome of an order. If one order has several, the first counts."""
        self.outcomes.setdefault(outcome.order_offset, outcome)

    @cached_property
    def acts(self) -> tuple[Act, ...]:
        """What the unit's orders did. All outcomes are added before it is asked for."""
        return acts_of(self.outcomes.values())

    def is_dead_lettered_by_order(self, offset: int) -> bool:
        """Return whether an order made the record at this offset a dead letter."""
        return any(each.order.kind is OrderKind.DEAD_LETTER and each.order.position == offset for each in self.acts)

    @property
    def longer_by_ms(self) -> int:
        """How much longer than usual the unit may have waited by its orders, in milliseconds."""
        ended = {each.order.id for each in self.outcomes.values() if each.order is not None}
        return longer_by_ms(self.outcomes.values(), [each for each in self.holds if each.id not in ended])

    def find(self, notification_id: str) -> ObservedNotification | None:
        return self._by_id.get(notification_id)

    def find_first(self, offset: int) -> ObservedNotification | None:
        """Return the first notification that names this offset as its source."""
        return self._by_offset.get(offset)

    def find_ids(self, offset: int) -> list[str]:
        """Return the ids of the notifications that name this offset as their source, each once, in the order of publishing."""
        return self._ids_by_offset.get(offset, [])

    @cached_property
    def _ids_by_offset(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for each in self.counted():
            found.setdefault(each.offset, []).append(each.notification_id)
        return found

    def find_first_place(self, offset: int | None) -> int | None:
        """Return the lowest place of the notifications of the records from this offset on; None if there are none."""
        offsets, places = self._in_order
        at = len(offsets) if offset is None else bisect_left(offsets, offset)
        return places[at] if at < len(places) else None

    @cached_property
    def _in_order(self) -> tuple[list[int], list[int]]:
        """The offsets with notifications, and the lowest place from each of them on. All output is added before."""
        seen = sorted(((each.offset, each.place) for each in self._by_offset.values()), reverse=True)
        lowest = accumulate((place for _, place in seen), min)
        return [offset for offset, _ in reversed(seen)], [*lowest][::-1]

    def is_dead_lettered(self, offset: int, reason: str) -> bool:
        """Return whether the record has exactly one dead letter, with this reason."""
        return [each.reason for each in self.dead_letters.get(offset, ())] == [reason]

    def has_dead_letter(self, offset: int, reason: str) -> bool:
        """Return whether any dead letter of the record has this reason."""
        return any(each.reason == reason for each in self.dead_letters.get(offset, ()))

    def counted(self) -> Sequence[ObservedNotification]:
        """Return each notification once, in the order of publishing."""
        return [each for each in self.notifications if self._by_id[each.notification_id] is each]
