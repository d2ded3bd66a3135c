"""Reads what operators have ordered. While orders cannot be read, delivery goes on."""

import logging
from collections.abc import Mapping

from guardian.ports import OrderBatch, OrderSource, TransportRefused, TransportUnavailable
from notification_service.delivery.direct.order_executor import OrderExecutor
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.delivery")
_AT_ONCE = 100


class OrderReading:
    """Says once why orders cannot be read."""

    def __init__(self) -> None:
        self._waits_for: str | None = None

    def read(self, orders: OrderSource, wanted: Mapping[Partition, OrderExecutor]) -> Mapping[Partition, OrderBatch]:
        """Return the next orders of the partitions; none while they cannot be read. Called in the transport's thread."""
        try:
            found = orders.poll({name: each.read_to for name, each in wanted.items()}, _AT_ONCE)
        except (TransportUnavailable, TransportRefused) as error:
            if str(error) != self._waits_for:
                _LOG.warning("orders wait: %s", error)
            self._waits_for = str(error)
            return {}
        self._waits_for = None
        return found
