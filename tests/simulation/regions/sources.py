"""Sources of a region: a log that can be read again, with or without a group that keeps positions, and who owns what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from harness.service_under_test import TOPIC
from simulation.reading import to_stored

from guardian.ports import Polled, Position, PublishRefused, TransportStatus, TransportUnavailable
from notification_service.connectors.region_port import SourceCapabilities
from resequencer.record import Origin, Partition, Record

if TYPE_CHECKING:
    from simulation.regions.worker import RegionWorker

PARTITIONS = tuple(Partition(TOPIC, number) for number in range(2))


class Lease(NamedTuple):
    """Which slot owns a partition. `epoch` counts how often that was decided anew."""

    slot: int
    epoch: int


class Leases:
    """Gives each partition to a slot. A worker learns of a change only when it polls."""

    def __init__(self, slots: int) -> None:
        self.of = {each: Lease(each.number % slots, 0) for each in PARTITIONS}

    def move(self, partition: Partition, slot: int) -> None:
        """Give the partition to the slot. It may be the one that has it: then another one may have owned it meanwhile."""
        self.of[partition] = Lease(slot, self.of[partition].epoch + 1)

    def of_slot(self, slot: int) -> dict[Partition, int]:
        return {partition: lease.epoch for partition, lease in self.of.items() if lease.slot == slot}


class LeasedSource:
    """What all sources of a region have in common: the partitions that this worker has, as of its last poll."""

    def __init__(self, worker: RegionWorker, leases: Leases) -> None:
        self.worker = worker
        self._leases = leases
        self._known: dict[Partition, int] | None = None
        self._sought: dict[Partition, int] = {}
        self.offsets: dict[Partition, int] = {}

    def standing(self) -> TransportStatus:
        return TransportStatus()

    def source(self, partition: Partition) -> str:
        return f"the log of {partition}"

    def start_offset(self, partition: Partition) -> int:
        return 0

    def assignment(self) -> list[Partition]:
        """As the port describes. A partition that was given away and back since its seek is left out once."""
        known = self._heard()
        left_out = {each for each, epoch in known.items() if self._sought.get(each, epoch) != epoch}
        for each in left_out | (self._sought.keys() - known.keys()):
            self._forget(each)
        return sorted(known.keys() - left_out)

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self._sought[partition] = self._heard()[partition]
        self.offsets[partition] = offset

    def wake(self) -> None:
        """Do nothing: no poll waits."""

    def check_owned(self, partitions: Collection[Partition]) -> None:
        known = self._heard()
        for each in partitions:
            if each not in known or self._sought.get(each, known[each]) != known[each]:
                raise PublishRefused(f"{each} is another worker's")

    def close(self) -> None:
        """Do nothing: a worker of the simulation dies."""

    def hear(self) -> None:
        """Learn which partitions this worker has."""
        self._known = self._leases.of_slot(self.worker.slot)

    def _heard(self) -> dict[Partition, int]:
        if self._known is None:
            self.hear()
        assert self._known is not None
        return self._known

    def _is_read(self, partition: Partition) -> bool:
        return partition in self._sought and self._heard().get(partition) == self._sought[partition]

    def _forget(self, partition: Partition) -> None:
        self._sought.pop(partition, None)
        self.offsets.pop(partition, None)

    def is_owner(self, partition: Partition) -> bool:
        """Whether the servers see this worker as the owner now."""
        return self._leases.of[partition] == (self.worker.slot, self._heard().get(partition))


class Log:
    """The logs of all partitions, and the positions that a group has acknowledged."""

    def __init__(self) -> None:
        self.lines: dict[Partition, list[bytes]] = {each: [] for each in PARTITIONS}
        self.positions: dict[Partition, Position] = {}

    def send(self, partition: Partition, line: bytes) -> None:
        self.lines[partition].append(line)

    def unread(self, partition: Partition, offset: int) -> int:
        """How many records are not read from `offset` on."""
        return len(self.lines[partition]) - offset


class LogSource(LeasedSource):
    """Reads a log. With `remembers` it keeps positions, as a group of Kafka does; else it is like files."""

    def __init__(self, worker: RegionWorker, leases: Leases, log: Log, *, remembers: bool) -> None:
        super().__init__(worker, leases)
        self._log = log
        self.capabilities = SourceCapabilities(can_replay=True, remembers=remembers)

    def position(self, partition: Partition) -> Position | None:
        return self.worker.ask(
            "committed", lambda: self._log.positions.get(partition), TransportUnavailable("no answer to committed")
        )

    def end_offset(self, partition: Partition) -> int:
        return len(self._log.lines[partition])

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        self.hear()
        read = [each for each in self._sought if self._is_read(each)]
        ends = {each: len(self._log.lines[each]) for each in self._sought}
        records: list[Record] = []
        for each in read:
            if each not in resting:
                taken = self._log.lines[each][self.offsets[each] : self.offsets[each] + max_records - len(records)]
                records += [to_record(line, each, at) for at, line in enumerate(taken, self.offsets[each])]
        moved = next_offsets(records)
        self.offsets |= moved
        return Polled(tuple(records), moved, ends, ends)

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        if self.capabilities.remembers:
            self.worker.ask("acknowledge", lambda: self._commit(positions), TransportUnavailable("no answer to acknowledge"))

    def _commit(self, positions: Mapping[Partition, Position]) -> None:
        if not all(map(self.is_owner, positions)):
            raise PublishRefused("the group has moved on")
        self._log.positions |= {each: Position(at.offset, at.metadata) for each, at in positions.items()}


def to_record(line: bytes, partition: Partition, offset: int) -> Record:
    stored = to_stored(line)
    return Record(Origin(partition, offset), stored.value or b"", stored.key, stored.headers)


def next_offsets(records: Sequence[Record]) -> dict[Partition, int]:
    return {each.origin.partition: each.origin.offset + 1 for each in records}
