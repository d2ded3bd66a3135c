"""Sends simulated lines to the queues that the JMS source reads."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from guardian.backoff import RetryWithBackoff
from guardian.ports import TransportRefused
from notification_service.connectors.jms.messages import Outgoing, outgoing
from notification_service.connectors.jms.settings import JmsSourceSettings, QueuePartition, XmsSourceSettings
from notification_service.connectors.line_format import partition_of
from notification_service.connectors.optional_clients import connect_jms
from notification_service.simulator.generate.input import LINES_PER_FLUSH, Input, read_line
from resequencer.errors import ResequencerError

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io, JmsConnection


PART = "part"
"""The property of a message that has the number of its partition, for selectors."""

_DUPLICATE_ID = "_AMQ_DUPL_ID"
"""Artemis drops a message with such a property that it has seen, so what is sent again after an outage is there once."""

_FLUSH_SECONDS = 60


class _Waiting(NamedTuple):
    partition: int
    message: Outgoing


class JmsInput(Input):
    """Sends a line's key, headers and value as a message with an id of its own, and with its partition as the property `part`.

    A line that is no record is sent as a body, byte for byte. A message gets its offset when the service takes it in. So the
    returned offsets are right if nothing else sends to the queues; `sent` is a file that counts, over all simulations, the
    messages of each partition. `retry` logs while the broker does not answer.
    """

    def __init__(self, settings: JmsSourceSettings, sent: Path, retry: RetryWithBackoff) -> None:
        self._settings = settings
        self._queues = [each.queue for each in settings.partitions]
        self._file = sent
        self._retry = retry
        self._run = uuid4().hex[:12]
        self._sent = _read_counts(sent, len(self._queues))
        self._count = 0
        self._waiting: list[_Waiting] = []
        self._connection: JmsConnection | None = None
        retry.until_answered("input", self._connected)

    def close(self) -> None:
        self._disconnect()

    def partition_of(self, key: bytes) -> int:
        return partition_of(key, len(self._queues))

    def append(self, partition: int, line: bytes) -> None:
        self.append_and_tell(partition, line)

    def append_and_tell(self, partition: int, line: bytes) -> int:
        record = read_line(line)
        self._count += 1
        name = f"sim-{self._run}-{self._count}"
        self._waiting.append(_Waiting(partition, outgoing(name, record.key, record.headers, record.value)))
        offset = self._sent[partition]
        self._sent[partition] += 1
        if len(self._waiting) >= LINES_PER_FLUSH:
            self.flush()
        return offset

    def flush(self) -> None:
        """Wait until the broker has all messages. Those that it may have already are sent again after an outage."""
        if self._waiting:
            self._retry.until_answered("input", self._send)
            self._waiting = []
            self._file.write_text(json.dumps(self._sent))

    def _send(self) -> None:
        waiting = self._waiting
        self._connected().call(lambda io: _send_all(io, self._queues, waiting), _FLUSH_SECONDS)

    def _connected(self) -> "JmsConnection":
        if self._connection is None or self._connection.is_lost:
            with suppress(ResequencerError):
                self._disconnect()
            self._connection = connect_jms(self._settings)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _send_all(io: "Io", queues: Sequence[str], waiting: Sequence[_Waiting]) -> None:
    """Send in the thread of the connection, and wait for the outcome of each message.

    Raises:
        TransportRefused: The broker does not take one.
        TransportUnavailable: It does not answer.
    """
    from notification_service.connectors.jms.transaction import Outcomes, SenderHandler, to_message

    senders = {queue: io.open_sender(queue, SenderHandler()) for queue in {queues[each.partition] for each in waiting}}
    deliveries: list[Any] = []
    for partition, outgoing_message in waiting:
        message = to_message(outgoing_message)
        message.properties |= {PART: partition, _DUPLICATE_ID: outgoing_message.id}
        deliveries.append(senders[queues[partition]].send(message))
    outcomes = Outcomes(deliveries)
    io.wait(outcomes.look, "the input", _FLUSH_SECONDS)
    for each in deliveries:
        each.settle()
    refused = outcomes.find_refused()
    for each in senders.values():
        each.close()
    if refused is not None:
        at, condition = refused
        problem = f"it does not take a message: {condition}. See the log of the broker"
        raise TransportRefused(f"queue {queues[waiting[at].partition]}", problem)


def _read_counts(file: Path, partitions: int) -> list[int]:
    try:
        counts = msgspec.json.decode(file.read_bytes(), type=list[int])
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        return [0] * partitions
    except msgspec.MsgspecError as error:
        raise TransportRefused(str(file), f"it is damaged ({error}). Begin with an empty queue and without this file") from error
    if len(counts) != partitions:
        problem = f"it counts the messages of {len(counts)} partitions, and {partitions} are configured"
        problem += ". Begin with an empty queue and without this file"
        raise TransportRefused(str(file), problem)
    return counts


class XmsInput(JmsInput):
    """Sends to one queue. `partition_of` is the partitioner of the bridge's start, and offsets are the bridge's."""

    def __init__(self, settings: XmsSourceSettings, partition_of: Callable[[bytes], int], retry: RetryWithBackoff) -> None:
        self._counted = TemporaryDirectory(prefix="simulated-")
        only = (QueuePartition(settings.queue),)
        queue = JmsSourceSettings(settings.url, settings.user, settings.password, partitions=only)
        super().__init__(queue, Path(self._counted.name) / "sent.json", retry)
        self._partition_of = partition_of

    def close(self) -> None:
        with self._counted:
            super().close()

    def partition_of(self, key: bytes) -> int:
        return self._partition_of(key)

    def append(self, partition: int, line: bytes) -> None:  # noqa: ARG002 - The queue has one partition.
        super().append_and_tell(0, line)

    def append_and_tell(self, partition: int, line: bytes) -> int:
        raise TransportRefused("the queue", f"the offset of a line of partition {partition} is the bridge's: {line!r:.60}")
