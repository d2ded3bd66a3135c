"""Sinks of a region: those that keep a marker in the transaction of the records, and those that remember nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from guardian.ports import NotPublished, OutputRecord, PartitionOutput, Position, PublishRefused, TransportUnavailable
from notification_service.connectors.region_port import SinkCapabilities
from resequencer.record import Partition

if TYPE_CHECKING:
    from simulation.regions.worker import RegionWorker


class Left(NamedTuple):
    """A record that arrived in a sink, from which partition of the source."""

    partition: Partition
    record: OutputRecord


class Marker(NamedTuple):
    """What left through a sink. `number` changes with every transaction, `epoch` with every new owner that fences."""

    position: Position
    number: int = 0
    epoch: int = 0


class Fences(StrEnum):
    """What refuses an earlier owner's publication."""

    EPOCH = "epoch"
    """Reading the marker ends the earlier owner's producer, as on Kafka."""
    NUMBER = "number"
    """A publication replaces the marker that was read last, as on JMS. Reading changes nothing."""


@dataclass(slots=True)
class SinkServer:
    """A server with records and, for each partition, a marker. A transaction has time for `max_at_once` records."""

    fences: Fences | None
    left: list[Left]
    markers: dict[Partition, Marker]
    max_at_once: int = 1 << 30

    @classmethod
    def empty(cls, fences: Fences | None) -> SinkServer:
        return cls(fences, [], {})

    def read(self, partition: Partition) -> Marker | None:
        found = self.markers.get(partition)
        if self.fences is Fences.EPOCH:
            found = self.markers[partition] = (found or _NO_MARKER)._replace(epoch=(found or _NO_MARKER).epoch + 1)
        return found

    def commit(self, outputs: Sequence[tuple[PartitionOutput, Marker]]) -> None:
        """Add the records and replace the markers, all or nothing, if each marker is still the one that its owner knows."""
        for output, known in outputs:
            if self.markers.get(output.partition, _NO_MARKER)[1:] != known[1:]:
                raise PublishRefused(f"another worker has published for {output.partition}")
        for output, known in outputs:
            self.left += [Left(output.partition, each) for each in output.records]
            self.markers[output.partition] = Marker(output.position, known.number + 1, known.epoch)


_NO_MARKER = Marker(Position(-1, ""))


class MarkerSink:
    """Publishes records and marker in one transaction: with the fencing of Kafka one for each partition, else one for all."""

    capabilities = SinkCapabilities(is_transactional=True, remembers=True)
    notes = ()

    def __init__(self, worker: RegionWorker, server: SinkServer) -> None:
        self._worker = worker
        self._server = server
        self._known: dict[Partition, Marker] = {}
        self._tried: dict[Partition, PartitionOutput] = {}

    def position(self, partition: Partition) -> Position | None:
        self._tried.pop(partition, None)
        marker = self._known[partition] = self._read(partition)
        return None if marker.position.offset < 0 else marker.position

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        is_one = self._server.fences is Fences.NUMBER
        for each in [outputs] if is_one else [[output] for output in outputs]:
            self._publish(each)

    def close(self) -> None:
        """Do nothing: a worker of the simulation dies."""

    def _publish(self, outputs: Sequence[PartitionOutput]) -> None:
        self._find_out(outputs)
        fresh = [(self._fresh(each), self._known.get(each.partition, _NO_MARKER)) for each in outputs]
        if not self._tried and self._worker.is_turned_away():
            raise NotPublished("no connection")
        if not self._tried and sum(len(output.records) for output, _ in fresh) > self._server.max_at_once:
            raise NotPublished("too much for one transaction")
        self._tried |= {output.partition: output for output, _ in fresh}
        no_answer = TransportUnavailable("no answer to publish")
        self._worker.ask("publish", lambda: self._server.commit(fresh), no_answer, may_come_late=True)
        for output, known in fresh:
            self._known[output.partition] = Marker(output.position, known.number + 1, known.epoch)
            del self._tried[output.partition]

    def _find_out(self, outputs: Sequence[PartitionOutput]) -> None:
        """Find out whether what was tried has left. A marker that is neither the tried nor the known one is another owner's."""
        for each in outputs:
            tried = self._tried.get(each.partition)
            if tried is None:
                continue
            is_same = (tried.position.offset, tried.position.metadata) == (each.position.offset, each.position.metadata)
            assert is_same or not tried.records, "something else is published before the outcome of the last try is known"
            known = self._known.get(each.partition, _NO_MARKER)
            found = self._read(each.partition)
            if found.number != known.number and not (found.number == known.number + 1 and found.position == tried.position):
                raise PublishRefused(f"another worker has published for {each.partition}")
            self._known[each.partition] = found
            del self._tried[each.partition]

    def _fresh(self, output: PartitionOutput) -> PartitionOutput:
        """Leave out what has left, and keep the highest number with the position."""
        before = self._known.get(output.partition, _NO_MARKER).position.highest
        records = tuple(each for each in output.records if each.number > before)
        highest = max(before, output.position.highest)
        return PartitionOutput(output.partition, records, replace(output.position, highest=highest))

    def _read(self, partition: Partition) -> Marker:
        failure = TransportUnavailable("no answer to position")
        return self._worker.ask("position", lambda: self._server.read(partition), failure) or _NO_MARKER


class ForgettingSink:
    """Sends records one by one, and remembers nothing."""

    capabilities = SinkCapabilities(is_transactional=False, remembers=False)
    notes = ()

    def __init__(self, worker: RegionWorker, server: SinkServer) -> None:
        self._worker = worker
        self._server = server

    def position(self, partition: Partition) -> None:
        """Remember nothing."""

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        if self._worker.is_turned_away():
            raise NotPublished("no connection")
        for output in outputs:
            for each in output.records:
                send = lambda each=each, at=output.partition: self._server.left.append(Left(at, each))  # type: ignore[misc]  # noqa: E731
                self._worker.ask("publish", send, TransportUnavailable("no answer to publish"))

    def close(self) -> None:
        """Do nothing: a worker of the simulation dies."""
