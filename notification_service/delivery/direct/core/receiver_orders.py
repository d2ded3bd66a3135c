"""Orders for a receiver as a whole, and the lines that name their outcomes. Pure.

They are in the first partition of the topic of orders, which each worker of the receiver reads from its beginning: so a pause
holds for the workers of retry topics, for partitions that are added, and after any restart.
"""

from collections.abc import Sequence
from contextlib import suppress

from guardian.ports import OrderRecord
from notification_service.delivery.core.jobs import Pause
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, DirectOutcome, DirectResult, decode
from notification_service.delivery.errors import OrderRefused
from resequencer.clock import Instant
from resequencer.printable import duration_text
from resequencer.record import Partition

_NEAR = 4
"""A record is near its end when this part of the time for which its topic keeps it remains: a quarter."""


class ReceiverOrders:
    """What the orders up to the offset `read_to` say. `pause` is None while the receiver gets calls.

    Nothing is known before the first `read`.
    """

    def __init__(self) -> None:
        self.read_to = 0
        self.is_known = False
        self.pause: Pause | None = None

    def read(self, records: Sequence[OrderRecord], end: int) -> bool:
        """Take in what the partition holds up to `end`; return whether a shut gate is to be tried now.

        At the first time it is not: such an order was meant for the gate of before. A log that ends earlier than before is a
        topic that was made again: it is read from its beginning next.
        """
        if end < self.read_to:
            self.read_to = 0
            return False
        probes = False
        if not self.read_to:
            self.pause = None
        for each in records:
            with suppress(ValueError):  # Its outcome says so.
                order = decode(each.value)
                if isinstance(order, DirectOrder) and order.is_for_receiver:
                    probes = probes or order.order is DirectOrderKind.RETRY_NOW
                    self._follow(order)
        was_known, self.is_known, self.read_to = self.is_known, True, end
        return probes and was_known

    def _follow(self, order: DirectOrder) -> None:
        if order.order is DirectOrderKind.PAUSE:
            self.pause = Pause(order.at, order.by, order.because)
        elif order.order is DirectOrderKind.RESUME:
            self.pause = None


def find_retention_note(partition: Partition, oldest_at: Instant | None, retention_ms: int | None, now: Instant) -> str | None:
    """Return a sentence if the brokers delete the oldest undelivered record soon; None if not, or if it is not known."""
    if oldest_at is None or retention_ms is None or (remains_ms := oldest_at + retention_ms - now) > retention_ms // _NEAR:
        return None
    ends = f"in {duration_text(remains_ms)}" if remains_ms > 0 else "from now on"
    return (
        f"{partition} keeps its records for {duration_text(retention_ms)}: the oldest that is not delivered may be deleted {ends}"
    )


def places_of(text: str, partitions: Sequence[Partition]) -> list[Partition]:
    """Return the partition of this name, or all of `partitions` if it is the name of their topic.

    Raises:
        OrderRefused: It is neither.
    """
    of_topic, named = [each for each in partitions if each.topic == text], Partition.find(text)
    if not of_topic and named is None:
        raise OrderRefused(f"{text} is no partition, such as NOTIFICATIONS-0, and not the topic of the receiver")
    return of_topic or [each for each in (named,) if each is not None]


def outcome_texts(places: Sequence[Partition | None], outcomes: Sequence[DirectOutcome | None], seconds: float) -> Sequence[str]:
    """Return a line for each order; a place is None for one that is for the receiver, an outcome where none came in time.

    Raises:
        OrderRefused: All are refused.
    """
    if all(each is not None and each.result is DirectResult.REFUSED for each in outcomes):
        raise OrderRefused("; ".join(each.text for each in outcomes if each is not None))
    found = zip(places, outcomes, strict=True)
    return [_unexecuted(place, seconds) if each is None else each.text for place, each in found]


def _unexecuted(place: Partition | None, seconds: float) -> str:
    owner = "the receiver's next worker" if place is None else f"the next owner of {place}"
    return f"the order is given, and no worker has executed it within {seconds:g} s: {owner} will"
