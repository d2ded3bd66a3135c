"""Takes messages from a queue by AMQP 1.0 without transactions, as IBM MQ offers it, for the bridge."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from guardian.headers import cut_headers
from guardian.ports import TransportUnavailable
from notification_service.connectors.jms.messages import read_record
from notification_service.connectors.jms.settings import BrokerSettings, XmsSourceSettings
from notification_service.connectors.line_format import Line
from notification_service.connectors.optional_clients import connect_jms
from resequencer.record import Origin, Partition

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io, JmsConnection


_MAX_BYTES = 16 << 20
"""About how many bytes are taken and not acknowledged: while the start is away, more must not come."""


class XmsSource:
    """Implements the port of the bridge's sources.

    The link carries the capability `queue`: without it IBM MQ opens a topic. An acknowledgement settles the message. The broker
    never confirms that, so after a loss of the connection the last ones may come again.

    Raises of the constructor:
        TransportUnavailable: The broker does not answer.
        TransportWithheld, TransportRefused: It refuses the login or the queue.
    """

    notes: Sequence[str] = ()

    def __init__(self, settings: XmsSourceSettings, connect: "Callable[[BrokerSettings], JmsConnection]" = connect_jms) -> None:
        self._origin = Origin(Partition(settings.queue, 0), 0)
        self._max_value_bytes = settings.max_value_bytes
        self._taken: list[int] = []
        self._bytes = 0
        self._connection = connect(settings)
        try:
            link = self._connection.receive(settings.queue, "", settings.window, settings.max_value_bytes, is_queue=True)
            self._link = link
        except BaseException:
            self._connection.close()
            raise

    def take(self, timeout_ms: int) -> list[Line]:
        """As notification_service/bridge/runner.py describes: body, correlation id and application properties."""
        until = monotonic() + timeout_ms / 1000
        while True:
            self._connection.arrived.clear()
            remaining = until - monotonic()
            has_room = self._bytes < _MAX_BYTES
            if (self._link.waiting and has_room) or self._link.is_detached or remaining <= 0:
                break
            self._connection.arrived.wait(remaining)
        self._check_open()
        found: list[Line] = []
        while self._link.waiting and self._bytes < _MAX_BYTES:
            found.append(self._take())
        return found

    def acknowledge(self) -> None:
        numbers, self._taken, self._bytes = self._taken, [], 0

        def accept(_: "Io") -> None:
            self._link.settle(numbers)

        self._check_open()
        self._connection.call(accept)

    def close(self) -> None:
        self._connection.close()

    def _take(self) -> Line:
        number, raw, message = self._link.take()
        self._taken.append(number)
        record = read_record(self._origin, message, raw, self._max_value_bytes, needs_id=False)
        # The service makes a dead letter of a beginning, as it does of anything that is no envelope.
        self._bytes += record.size
        return Line(record.value, record.key, (*record.headers, *(cut_headers(record.cut) if record.cut else ())))

    def _check_open(self) -> None:
        if self._link.is_detached:
            raise TransportUnavailable("the link to the queue is lost")
