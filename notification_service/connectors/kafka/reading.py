"""The reading half of all that reads a Kafka topic: as a member of the group, or fixed partitions without a group."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic

from guardian.ports import NotPublished, Polled, Position, PublishRefused, TransportRefused, TransportStatus, TransportUnavailable
from notification_service.connectors.kafka.client import to_transport_error
from notification_service.connectors.kafka.consumer import Fetched, FixedMember, GroupMember, PollWait
from notification_service.connectors.kafka.core.fencing import Committed, Fencing, OpenTransactions
from notification_service.connectors.kafka.core.offset_metadata import PausedPartitions
from notification_service.connectors.kafka.core.records import to_records
from notification_service.connectors.kafka.input_topic import Input
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.publisher import Publisher
from notification_service.connectors.kafka.region import FixedPublishers
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from resequencer.clock import Clock
from resequencer.errors import ResequencerError
from resequencer.record import Partition, Record

_LOG = logging.getLogger("resequencer.connectors")


class Reading:
    """The reading calls of the ports of transports and of sources. Nothing is connected before the first call.

    Derived classes publish: with `_to_commit` they learn which positions they may commit, and with `_publisher` they commit.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._fencing = Fencing()
        self._topics = Topics(settings)
        self._input = Input(settings, self._topics)
        self._log = LogReader(settings)
        self._written = LogReader(settings.uncommitted())
        self._fixed = None if settings.partitions is None else FixedPublishers(settings, self._log, self._fencing)
        self._publisher = self._fixed or Publisher(settings, self._log, self._fencing)
        self._paused = PausedPartitions(settings.look_interval_ms / 1000)
        self._undecided = OpenTransactions()
        self._member: GroupMember | None = None
        self._poll_wait = PollWait()
        self._next_offsets: dict[Partition, int] = {}
        self._waiting: dict[Partition, int] = {}
        self._looked_at = 0.0
        self._empty_since: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for an operator about problems that do not stop the service."""
        return (*self._input.notes, *self._paused.notes, *self._undecided.notes)

    def standing(self) -> TransportStatus:
        """As the port describes. A new member without partitions may be about to receive ones that others are releasing.

        It learns of them with a heartbeat. So it counts as joined only after `settling_seconds`.
        """
        snapshot = self._fencing.snapshot
        is_settled = self._empty_since is None or monotonic() - self._empty_since > self._settings.settling_seconds
        return TransportStatus(snapshot is not None and is_settled, self.notes, self._input.misplaced)

    def assignment(self) -> list[Partition]:
        self._connected()
        return self._fencing.assignment()

    def position(self, partition: Partition) -> Position | None:
        """As the port describes. A position that another program wrote is returned without its metadata."""
        self._connected()
        if self._fixed is not None:
            self._fixed.fence(partition)
        self._publisher.resolve()
        committed = self._log.position(partition, self._publisher.asked_under())
        self._fencing.note_position(partition, committed)
        if committed is not None:
            return self._input.position(partition, committed)
        if not self._settings.begins_at_earliest:
            remedy = "Set auto.offset.reset = earliest to begin at the start of the log, or set the group's position"
            raise TransportRefused(str(partition), f"the group has no position, and auto.offset.reset is none. {remedy}")
        return None

    def source(self, partition: Partition) -> str:  # noqa: ARG002 - All partitions are of one topic.
        return self._input.source()

    def start_offset(self, partition: Partition) -> int:
        return self._log.starts([partition])[partition]

    def end_offset(self, partition: Partition) -> int:
        return self._log.ends([partition])[partition]

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:  # noqa: ARG002 - A log can be read again.
        """As the port describes.

        Raises:
            TransportRefused: The log does not reach `offset`, or retention deleted it.
        """
        member = self._connected()
        _refuse_outside(partition, offset, self.start_offset(partition), self.end_offset(partition))
        if not self._fencing.is_known(partition):
            self.position(partition)
        if self._fencing.note_sought(partition):
            self._next_offsets[partition] = offset
            member.seek(partition, offset)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        member, fencing = self._connected(), self._fencing
        self._look_now_and_then()
        # Ends come before the records, because they must not be newer; if the brokers do not answer, no record is lost. Ends are
        # read even if no record may be read: an unknown end must not pass for one that was reached.
        ends, log_ends = self._ends(fencing.sought)
        self._undecided.note(ends, log_ends, self._clock.now())
        now = monotonic()
        sought = fencing.sought.difference(resting)
        readable = [each for each in sought if fencing.is_readable(each) and self._paused.is_readable(each, now)]
        try:
            fetched = member.poll(readable, max_records, timeout_ms)
            snapshot = member.find_snapshot()
            fencing.note_group(snapshot, member.take_disturbed())
            self._note_assignment()
            self._look_again()
        except BaseException:
            # Fetched records are not returned, so they must be fetched again.
            self._put_back(member, readable)
            raise
        delivered = [each for each in fetched.next_offsets if snapshot is not None and fencing.is_readable(each)]
        self._put_back(member, fetched.next_offsets.keys() - set(delivered))
        moved = {each: fetched.next_offsets[each] for each in delivered}
        self._next_offsets |= moved
        self._pause_unreadable(fetched, log_ends)
        records = self._records(fetched, delivered)
        self._input.look_at_keys(records)
        return Polled(records, moved, ends, log_ends)

    def wake(self) -> None:
        self._poll_wait.wake()

    def close(self) -> None:
        """Leave the group and close all clients. A client that fails to close ends with the process."""
        for each in (self._member, self._publisher, self._log, self._written, self._topics):
            with suppress(ResequencerError):
                if each is not None:
                    each.close()
        self._member = None

    def _make_fixed(self) -> FixedMember:
        wanted, topic = self._settings.partitions or (), self._input.look()
        if missing := [each for each in wanted if each >= topic.partitions]:
            problem = f"it has {topic.partitions} partitions, and kafka.partitions names {', '.join(map(str, missing))}"
            raise TransportRefused(f"topic {topic.name}", f"{problem}. Give it more (kafka-topics --alter), or name others")
        return FixedMember(self._settings, self._poll_wait)

    def _connected(self) -> GroupMember:
        if self._member is None:
            self._input.connect()
            self._log.connect()
            self._written.connect()
            self._publisher.connect()
            self._member = GroupMember(self._settings, self._poll_wait) if self._fixed is None else self._make_fixed()
        return self._member

    def _to_commit(self, positions: Mapping[Partition, Position]) -> dict[Partition, Committed]:
        """Return the positions that are still to be committed, as they are committed; none if the same call before has done it.

        Raises: as `Transport.publish`.
        """
        self._connected()
        self._publisher.resolve()
        wanted = {each: self._input.committed(each, position) for each, position in positions.items()}
        remaining = {each: position for each, position in wanted.items() if not self._publisher.is_committed(each, position)}
        if not remaining:
            return {}
        self._refuse_not_owned(remaining)
        if self._publisher.take_failed(remaining):
            raise NotPublished("the last transaction was not committed; its output is sent again")
        return remaining

    def _refuse_not_owned(self, partitions: Collection[Partition]) -> None:
        self._look_again()
        if not_owned := self._fencing.not_owned(partitions):
            raise PublishRefused(f"not assigned to this worker at the moment: {', '.join(map(str, not_owned))}")

    def _ends(self, partitions: Collection[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Return the end of each log's decided part, and the end of each log.

        Reading gets as far as the decided end. If it has reached the log's end, both ends are equal.
        """
        written = self._written.ends(partitions)
        decided = self._log.ends([each for each, end in written.items() if self._next_offsets[each] < end])
        ends = written | decided
        return ends, {each: max(end, ends[each]) for each, end in written.items()}

    def _note_assignment(self) -> None:
        if self._fencing.snapshot is None or self._fencing.snapshot.assigned:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = monotonic()

    def _look_now_and_then(self) -> None:
        if (monotonic() - self._looked_at) * 1000 > self._settings.look_interval_ms:
            self._input.look()
            self._looked_at = monotonic()

    def _look_again(self) -> None:
        """Check the positions of partitions that the group may have assigned to another worker in between.

        A position that stays unknown is checked again next time; until then its partition is neither read nor published for.
        Partitions that were checked the fewest times come first, so that a slow one does not delay the others.
        """
        suspects = self._fencing.suspects()
        self._waiting = {each: tries for each, tries in self._waiting.items() if each in suspects}
        until = monotonic() + 2 * self._settings.undecided_wait_ms / 1000
        if suspects:
            self._publisher.resolve()
        for partition in sorted(suspects, key=lambda each: self._waiting.get(each, 0)):
            if not self._check_position(partition) and monotonic() > until:
                return

    def _check_position(self, partition: Partition) -> bool:
        try:
            found = self._log.position(partition, self._publisher.asked_under())
        except TransportUnavailable as error:
            if partition not in self._waiting:
                _LOG.info("%s is neither read nor published for until its position is known: %s", partition, error)
            self._waiting[partition] = self._waiting.get(partition, 0) + 1
            return False
        if not self._fencing.compare(partition, found):
            _LOG.warning("%s was owned by another worker in the meantime; taking it over again", partition)
        return True

    def _put_back(self, member: GroupMember, partitions: Iterable[Partition]) -> None:
        """Seek back to records that were fetched but not returned, so that they are fetched again."""
        for each in self._fencing.sought.intersection(partitions):
            member.seek(each, self._next_offsets[each])

    def _pause_unreadable(self, fetched: Fetched, log_ends: Mapping[Partition, int]) -> None:
        """Pause partitions that cannot be read; reading of the others continues."""
        sought = self._fencing.sought
        behind = {each for each in sought if self._next_offsets[each] < log_ends.get(each, inf)}
        self._paused.keep(behind - fetched.next_offsets.keys())
        for partition in sought & fetched.unreadable.keys():
            what = f"{partition} is not read from offset {self._next_offsets[partition]} on, other partitions are"
            text = str(to_transport_error(what, fetched.unreadable[partition]))
            if self._paused.note(partition, text, monotonic()):
                _LOG.error("%s", text)

    def _records(self, fetched: Fetched, delivered: Sequence[Partition]) -> tuple[Record, ...]:
        limit = self._settings.max_value_bytes
        return tuple(record for each in delivered for record in to_records(each, fetched.records.get(each, ()), limit))


def _refuse_outside(partition: Partition, offset: int, start: int, end: int) -> None:
    if offset < start:
        problem = f"the records {offset} to {start - 1} were not read and are gone: retention deleted them"
        raise TransportRefused(str(partition), f"{problem}. Have the topic keep its records longer")
    if offset > end:
        problem = f"it was read up to offset {offset}, but its log ends at {end}: the brokers have lost records"
        raise TransportRefused(str(partition), f"{problem}. Restore them, or reset the group's position")
