"""A source that can neither replay nor remember: queues of messages, as JMS has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from simulation.regions.sources import PARTITIONS, LeasedSource, Leases, next_offsets, to_record

from guardian.ports import Polled, Position, PublishRefused, TransportUnavailable
from notification_service.connectors.region_port import SourceCapabilities
from resequencer.record import Partition, Record

if TYPE_CHECKING:
    from simulation.regions.worker import RegionWorker

WINDOW = 3
"""The most messages that a consumer holds at a time."""

KEPT = 4 * WINDOW
"""How many ids of earlier owners are kept. So many may still be held by consumers that stand still."""


@dataclass(eq=False, slots=True)
class Message:
    """`held_by` is the consumer that has it; None: it waits in the queue."""

    id: str
    line: bytes
    held_by: object | None = None
    is_gone: bool = False


class Consumer:
    """A link to one queue. `is_cut` is set if the broker has closed it."""

    is_cut = False


class Queues:
    """A queue for each partition. A message that is given back waits at its old place, ahead of newer ones.

    `lines` has what was sent, by the message's id. `are_late` says that a worker that stood still held messages while the next
    owner read: they come after later ones, or after a deadline.
    """

    def __init__(self) -> None:
        self.messages: dict[Partition, list[Message]] = {each: [] for each in PARTITIONS}
        self.acknowledged: dict[str, Partition] = {}
        self.lines: dict[str, bytes] = {}
        self.are_late = False

    def send(self, partition: Partition, line: bytes) -> None:
        message = Message(f"m{len(self.lines) + 1}", line)
        self.lines[message.id] = line
        self.messages[partition].append(message)

    def receive(self, partition: Partition, consumer: object) -> Message | None:
        found = next((each for each in self.messages[partition] if each.held_by is None), None)
        if found is not None:
            found.held_by = consumer
        return found

    def note_holders(self, partition: Partition, reader: Consumer | None) -> None:
        """Note whether another consumer than the one that reads holds a message."""
        self.are_late |= any(each.held_by not in (None, reader) for each in self.messages[partition])

    def waiting(self, partition: Partition) -> int:
        return sum(each.held_by is None for each in self.messages[partition])

    def held(self) -> int:
        """How many messages a consumer holds, in all queues."""
        return sum(each.held_by is not None for messages in self.messages.values() for each in messages)

    def accept(self, partition: Partition, ids: Collection[str], consumer: Consumer) -> set[str]:
        """Remove these messages, all or none: in a transaction. Return those that the consumer had."""
        if consumer.is_cut:
            raise TransportUnavailable("the connection is lost")
        mine = {each.id for each in self.messages[partition] if each.held_by is consumer and each.id in ids}
        self.messages[partition] = [each for each in self.messages[partition] if each.id not in mine]
        self.acknowledged |= dict.fromkeys(mine, partition)
        return mine

    def give_back(self, consumer: object) -> None:
        """Make what the consumer holds available again."""
        for messages in self.messages.values():
            for each in messages:
                if each.held_by is consumer:
                    each.held_by = None


class QueueSource(LeasedSource):
    """Numbers messages when it takes them, and keeps the ids of those whose acknowledgement is not confirmed.

    `_taken` holds these ids in the order in which they were taken, with their offsets; None for those of earlier owners. A link
    that was lost is not replaced: its partition is taken over anew. Only what the header named is settled when it comes again:
    what was taken here may not be stored.
    """

    def __init__(self, worker: RegionWorker, leases: Leases, queues: Queues) -> None:
        super().__init__(worker, leases)
        self._queues = queues
        self.capabilities = SourceCapabilities(can_replay=False, remembers=False, window=WINDOW)
        self._links: dict[Partition, Consumer] = {}
        self._taken: dict[Partition, dict[str, int | None]] = {}
        self._is_reset: set[Partition] = set()

    def position(self, partition: Partition) -> None:
        raise AssertionError(f"asked for the position of {partition}, and remembers none")

    def end_offset(self, partition: Partition) -> int:
        return self.offsets.get(partition, 0)

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self._sought.pop(partition, None)
        self.worker.ask("seek", lambda: self._detach(partition), TransportUnavailable("no answer to seek"))
        super().seek(partition, offset)
        earlier = msgspec.json.decode(source_state, type=list[str]) if source_state else []
        self._taken[partition] = dict.fromkeys(earlier)
        self.worker.begins_taking(partition)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        self.hear()
        for each, link in list(self._links.items()):
            if link.is_cut:
                self._reset(each)
            elif not self._is_read(each):
                self._detach(each)
        read = [each for each in self._sought if self._is_read(each)]
        records: list[Record] = []
        new: dict[Partition, dict[str, int | None]] = {each: {} for each in read}
        try:
            for each in read:
                self._pass_over(each)
                if each not in resting:
                    records += self._take(each, max_records - len(records), new[each])
        except TransportUnavailable:
            # What this poll took was not returned. It must not count as taken when it comes again.
            for each in read:
                self._reset(each)
            raise
        for each, taken in new.items():
            self._taken[each] |= taken
            self.worker.takes(each, taken)
        moved = next_offsets(records)
        self.offsets |= moved
        for each in self.offsets:
            self._queues.note_holders(each, self._links.get(each))
        # The end of one whose link was lost is not known: there is more.
        more = {each: self._queues.waiting(each) + (each in self._is_reset) for each in self.offsets}
        ends = {each: self.offsets[each] + count for each, count in more.items()}
        return Polled(tuple(records), moved, ends, ends, {each: self._state(each) for each in moved})

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        for partition, position in positions.items():
            taken = self._taken.get(partition, {})
            ids = [each for each, offset in taken.items() if offset is not None and offset < position.offset]
            if ids:
                self._accept(partition, ids)
                self._taken[partition] = {each: at for each, at in taken.items() if each not in ids or at is None}

    def disconnect(self) -> list[Consumer]:
        """Return the links of a worker that is gone; the broker closes them."""
        links, self._links = list(self._links.values()), {}
        return links

    def links(self) -> list[Consumer]:
        return list(self._links.values())

    def _take(self, partition: Partition, most: int, new: dict[str, int | None]) -> list[Record]:
        taken, offset, records = self._taken[partition], self.offsets[partition], list[Record]()
        mine = sum(at is not None for at in taken.values())
        while len(records) < min(most, WINDOW - mine):
            message = self._queues.receive(partition, self._link(partition))
            if message is None:
                break
            if taken.get(message.id, offset) is None:
                self._settle(partition, message)
                continue
            new[message.id] = offset
            records.append(to_record(message.line, partition, offset))
            offset += 1
        return records

    def _pass_over(self, partition: Partition) -> None:
        """Settle messages at the head of the queue that were taken before and come again."""
        while self._queues.waiting(partition):
            head = next(each for each in self._queues.messages[partition] if each.held_by is None)
            if self._taken[partition].get(head.id, -1) is not None:
                return
            head.held_by = self._link(partition)
            self._settle(partition, head)

    def _settle(self, partition: Partition, message: Message) -> None:
        self._accept(partition, [message.id])
        del self._taken[partition][message.id]

    def _accept(self, partition: Partition, ids: list[str]) -> None:
        link = self._links.get(partition)
        try:
            if link is None or link.is_cut:
                raise TransportUnavailable("the connection is lost")
            accept = lambda: self.worker.acknowledges(partition, self._queues.accept(partition, ids, link))  # noqa: E731
            self.worker.ask("acknowledge", accept, TransportUnavailable("no answer to acknowledge"))
        except TransportUnavailable:
            self._reset(partition)
            raise

    def _reset(self, partition: Partition) -> None:
        """Give the partition up. Its next takeover knows what is stored: what was taken here may not be."""
        self._sought.pop(partition, None)
        self._detach(partition)
        self._is_reset.add(partition)

    def assignment(self) -> list[Partition]:
        """As the port describes. A partition whose link was lost is left out once."""
        assigned = [each for each in super().assignment() if each not in self._is_reset]
        for each in self._is_reset:
            self._forget(each)
        self._is_reset.clear()
        return assigned

    def check_owned(self, partitions: Collection[Partition]) -> None:
        super().check_owned(partitions)
        if not self._sought.keys() >= set(partitions):
            raise PublishRefused("the link was lost")

    def _detach(self, partition: Partition) -> None:
        link = self._links.pop(partition, None)
        if link is not None:
            self._queues.give_back(link)

    def _link(self, partition: Partition) -> Consumer:
        link = self._links.setdefault(partition, Consumer())
        if link.is_cut:
            raise TransportUnavailable("the connection is lost")
        return link

    def _state(self, partition: Partition) -> str:
        """The ids for the header: all of this owner, and a bounded number of earlier ones."""
        taken = self._taken[partition]
        earlier = [each for each, at in taken.items() if at is None]
        for each in earlier[: max(0, len(earlier) - KEPT)]:
            del taken[each]
        return msgspec.json.encode(list(taken)).decode()

    def _forget(self, partition: Partition) -> None:
        super()._forget(partition)
        self._detach(partition)
