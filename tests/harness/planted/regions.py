"""Faults of a region: of its transport, of its sinks, of its source and of the takeover, planted while a simulation runs."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from simulation.regions.queues import Message, QueueSource
from simulation.regions.sinks import Marker, MarkerSink, SinkServer

import guardian.partitions
from guardian.owned_partition import OwnedPartition
from guardian.ports import NotPublished, OutputRecord, PartitionOutput, Position, TransportUnavailable
from guardian.takeover import Takeover
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.region_transport import RegionTransport, Route
from resequencer.record import Partition, Record
from resequencer.storage_port import Commit

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


# The transport


def _with_routes(patch: Patch, order: Callable[[RegionTransport], list[Any]]) -> None:
    right = RegionTransport.__init__

    def faulty(self: RegionTransport, *arguments: Any) -> None:
        right(self, *arguments)
        self._routes = order(self)

    patch.setattr(RegionTransport, "__init__", faulty)


def acknowledged_before_the_sinks(patch: Patch) -> None:
    right = RegionTransport.publish

    def faulty(self: RegionTransport, outputs: Sequence[PartitionOutput]) -> None:
        self._source.acknowledge({each.partition: each.position for each in outputs})
        right(self, outputs)

    patch.setattr(RegionTransport, "publish", faulty)


def acknowledged_after_the_first_sink(patch: Patch) -> None:
    right = RegionTransport._send

    def faulty(self: RegionTransport, route: Route, outputs: Sequence[PartitionOutput]) -> None:
        right(self, route, outputs)
        if route is self._routes[0]:
            self._source.acknowledge({each.partition: each.position for each in outputs})

    patch.setattr(RegionTransport, "_send", faulty)


def forgetting_sink_last(patch: Patch) -> None:
    _with_routes(patch, lambda self: sorted(self._routes, key=lambda each: not each.sink.capabilities.remembers))


def _with_position(patch: Patch, choose: Callable[[Sequence[Position]], Position]) -> None:
    """Return another sink's position than that of the one that is furthest behind."""
    right = RegionTransport.position

    def faulty(self: RegionTransport, partition: Partition) -> Position | None:
        found = right(self, partition)
        known = [each.sink.position(partition) for each in self._routes]
        known = [each for each in known if each is not None]
        if found is None or self._source.capabilities.remembers or not known:
            return found
        chosen = choose(known)
        return replace(found, offset=chosen.offset, metadata=chosen.metadata)

    patch.setattr(RegionTransport, "position", faulty)


def position_of_the_first_sink(patch: Patch) -> None:
    _with_position(patch, lambda known: known[0])


def position_of_the_last_sink(patch: Patch) -> None:
    """The order of the configuration decides, and the configuration has changed."""
    _with_position(patch, lambda known: known[-1])


def position_of_the_furthest_sink(patch: Patch) -> None:
    _with_position(patch, lambda known: max(known, key=lambda each: each.highest))


def _with_found(patch: Patch, change: Callable[[RegionTransport, Partition, Position], Position]) -> None:
    right = RegionTransport.position

    def faulty(self: RegionTransport, partition: Partition) -> Position | None:
        found = right(self, partition)
        return None if found is None else change(self, partition, found)

    patch.setattr(RegionTransport, "position", faulty)


def beyond_taken_from_one_sink_for_all(patch: Patch) -> None:
    def change(self: RegionTransport, partition: Partition, found: Position) -> Position:
        known = [each.sink.position(partition) for each in self._routes]
        return replace(found, beyond=frozenset(number for each in known if each is not None for number in each.beyond))

    _with_found(patch, change)


def highest_number_of_the_sinks_ignored(patch: Patch) -> None:
    _with_found(patch, lambda _, __, found: replace(found, highest=0))


def sink_without_a_marker_not_noticed(patch: Patch) -> None:
    _with_found(patch, lambda _, __, found: replace(found, is_whole=True))


def sinks_not_asked_where_the_source_knows(patch: Patch) -> None:
    """So they are not fenced either."""
    right = RegionTransport.position

    def faulty(self: RegionTransport, partition: Partition) -> Position | None:
        own = self._source.position(partition) if self._source.capabilities.remembers else None
        return right(self, partition) if own is None else own

    patch.setattr(RegionTransport, "position", faulty)


def nothing_left_passed_on_though_another_sink_is_undecided(patch: Patch) -> None:
    right = RegionTransport._send

    def faulty(self: RegionTransport, route: Route, outputs: Sequence[PartitionOutput]) -> None:
        for each in self._undecided.values():
            each.clear()
        right(self, route, outputs)

    patch.setattr(RegionTransport, "_send", faulty)


def nothing_left_of_the_second_sink_not_passed_on(patch: Patch) -> None:
    """So the portion stays too large for it."""
    right = RegionTransport._send

    def faulty(self: RegionTransport, route: Route, outputs: Sequence[PartitionOutput]) -> None:
        try:
            right(self, route, outputs)
        except NotPublished as error:
            if route is self._routes[0]:
                raise
            raise TransportUnavailable(str(error)) from error

    patch.setattr(RegionTransport, "_send", faulty)


# The takeover


def _with_plan(patch: Patch, change: Callable[[Takeover, Any, Position | None], Takeover]) -> None:
    right = guardian.partitions.plan_takeover

    def faulty(header: Any, pending: Any, position: Position | None, *others: Any, **named: Any) -> Takeover:
        return change(right(header, pending, position, *others, **named), header, position)

    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def sink_ahead_of_the_storage_not_noticed(patch: Patch) -> None:
    """The storage has gone back to the commit of the position, and a sink has what it has lost."""
    right = guardian.partitions.plan_takeover

    def faulty(header: Any, pending: Any, position: Position | None, *others: Any, **named: Any) -> Takeover:
        plan = right(header, pending, position, *others, **named)
        if position is None or not plan.must_heal or position.highest <= header.highest_number:
            return plan
        behind = right(header, pending, replace(position, highest=0), *others, **named)
        return behind if behind.must_heal else replace(behind, highest_number=plan.highest_number)

    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def marker_missing_and_pending_filtered(patch: Patch) -> None:
    """The sink without a marker gets only what the others lack."""

    def change(plan: Takeover, header: Any, position: Position | None) -> Takeover:
        metadata = guardian.partitions.find_metadata(position.metadata) if position is not None else None
        if not plan.must_mark or metadata is None:
            return plan
        left = tuple(each for each in plan.pending if each.number > metadata.published)
        return replace(plan, pending=left, must_mark=bool(left))

    _with_plan(patch, change)


def marker_missing_and_nothing_marked(patch: Patch) -> None:
    _with_plan(patch, lambda plan, _, __: replace(plan, must_mark=False))


def queue_healed_with_offsets_from_the_start(patch: Patch) -> None:
    patch.setattr("guardian.takeover._without_replay", lambda plan, *_: plan)


def queue_healed_without_marks(patch: Patch) -> None:
    right = guardian.partitions.plan_takeover

    def faulty(*arguments: Any, standing: Any, **named: Any) -> Takeover:
        plan = right(*arguments, standing=standing, **named)
        return replace(plan, heal_offset=min(plan.heal_offset, plan.offset)) if standing.window else plan

    patch.setattr(guardian.partitions, "plan_takeover", faulty)


# The sinks


def marker_not_fenced(patch: Patch) -> None:
    def faulty(self: SinkServer, outputs: Sequence[tuple[PartitionOutput, Marker]]) -> None:
        for output, _ in outputs:
            known = self.markers.get(output.partition, Marker(Position(-1, "")))
            _leave(self, output)
            self.markers[output.partition] = Marker(output.position, known.number + 1, known.epoch)

    patch.setattr(SinkServer, "commit", faulty)


def _leave(server: SinkServer, output: PartitionOutput) -> None:
    from simulation.regions.sinks import Left

    server.left += [Left(output.partition, each) for each in output.records]


def marker_written_after_the_transaction(patch: Patch) -> None:
    right = MarkerSink._publish

    def faulty(self: MarkerSink, outputs: Sequence[PartitionOutput]) -> None:
        self._find_out(outputs)
        for each in outputs:
            fresh = self._fresh(each)
            self._worker.ask("publish", lambda fresh=fresh: _leave(self._server, fresh), NotPublished("no answer"))  # type: ignore[misc]
        right(self, [replace_records(each) for each in outputs])

    patch.setattr(MarkerSink, "_publish", faulty)


def replace_records(output: PartitionOutput, records: tuple[OutputRecord, ...] = ()) -> PartitionOutput:
    return PartitionOutput(output.partition, records, output.position)


def marker_written_before_the_records(patch: Patch) -> None:
    right = MarkerSink._publish

    def faulty(self: MarkerSink, outputs: Sequence[PartitionOutput]) -> None:
        self._find_out(outputs)
        fresh = [self._fresh(each) for each in outputs]
        right(self, [replace_records(each) for each in outputs])
        for each in fresh:
            self._worker.ask("publish", lambda each=each: _leave(self._server, each), NotPublished("no answer"))  # type: ignore[misc]

    patch.setattr(MarkerSink, "_publish", faulty)


def highest_number_not_kept(patch: Patch) -> None:
    """A smaller portion moves the marker back."""
    right = MarkerSink._fresh

    def faulty(self: MarkerSink, output: PartitionOutput) -> PartitionOutput:
        fresh = right(self, output)
        return PartitionOutput(fresh.partition, fresh.records, output.position)

    patch.setattr(MarkerSink, "_fresh", faulty)


def highest_number_not_kept_in_files(patch: Patch) -> None:
    right = FileSink._write

    def faulty(self: FileSink, positions: dict[Partition, Position], highest: dict[Partition, int]) -> None:
        right(self, positions, {})

    patch.setattr(FileSink, "_write", faulty)


def repeated_records_not_passed_over(patch: Patch) -> None:
    right = MarkerSink._fresh
    patch.setattr(
        MarkerSink, "_fresh", lambda self, output: PartitionOutput(output.partition, output.records, right(self, output).position)
    )


def another_owners_marker_adopted(patch: Patch) -> None:
    """After no answer, what another owner has published meanwhile is taken for one's own."""

    def faulty(self: MarkerSink, outputs: Sequence[PartitionOutput]) -> None:
        for each in outputs:
            self._known[each.partition] = self._read(each.partition)
            self._tried.pop(each.partition, None)

    patch.setattr(MarkerSink, "_find_out", faulty)


def unknown_outcome_of_a_sink_taken_as_done(patch: Patch) -> None:
    right = MarkerSink._publish

    def faulty(self: MarkerSink, outputs: Sequence[PartitionOutput]) -> None:
        if not any(each.partition in self._tried for each in outputs):
            right(self, outputs)
        for each in outputs:
            self._tried.pop(each.partition, None)

    patch.setattr(MarkerSink, "_publish", faulty)


# A source that cannot replay


def source_state_not_committed(patch: Patch) -> None:
    right = OwnedPartition._commit

    def faulty(self: OwnedPartition, *arguments: Any) -> Commit:
        return replace(right(self, *arguments), source_state=self.store.header.source_state)

    patch.setattr(OwnedPartition, "_commit", faulty)


def source_state_cleared_at_the_first_new_message(patch: Patch) -> None:
    right = QueueSource._take

    def faulty(self: QueueSource, partition: Partition, most: int, new: dict[str, int | None]) -> list[Record]:
        records = right(self, partition, most, new)
        if records:
            self._taken[partition] = {each: at for each, at in self._taken[partition].items() if at is not None}
        return records

    patch.setattr(QueueSource, "_take", faulty)


def source_state_never_cleared(patch: Patch) -> None:
    def faulty(self: QueueSource, partition: Partition) -> str:
        kept = self.__dict__.setdefault("kept", {}).setdefault(partition, {})
        kept |= self._taken[partition]
        return right(self, partition).replace("[", "[" + "".join(f'"{each}",' for each in kept), 1)

    right = QueueSource._state
    patch.setattr(QueueSource, "_state", faulty)


def what_comes_again_told_by_how_often_it_was_delivered(patch: Patch) -> None:
    """A broker that counts a delivery only when it was refused says of each that it is the first one."""
    patch.setattr(QueueSource, "_pass_over", lambda *_: None)
    right = QueueSource._take

    def faulty(self: QueueSource, partition: Partition, most: int, new: dict[str, int | None]) -> list[Record]:
        known = self._taken[partition]
        self._taken[partition] = {each: at for each, at in known.items() if at is not None}
        try:
            return right(self, partition, most, new)
        finally:
            self._taken[partition] = known | self._taken[partition]

    patch.setattr(QueueSource, "_take", faulty)


def what_comes_again_told_by_its_age(patch: Patch) -> None:
    """Everything older than the youngest message that was taken counts as taken."""
    right = QueueSource.seek

    def faulty(self: QueueSource, partition: Partition, offset: int, source_state: str = "") -> None:
        right(self, partition, offset, source_state)
        taken = self._taken[partition]
        youngest = max((_age(each) for each in taken), default=0)
        older: list[Message] = [each for each in self._queues.messages[partition] if _age(each.id) <= youngest]
        self._taken[partition] = {each.id: None for each in older} | taken

    patch.setattr(QueueSource, "seek", faulty)


def _age(message: str) -> int:
    return int(message[1:])


def acknowledged_before_the_seek(patch: Patch) -> None:
    """The position of a heal acknowledges what this source took before, and what is stored nowhere."""
    patch.setattr(RegionTransport, "_is_read", lambda *_: True)


def acknowledged_above_the_position(patch: Patch) -> None:
    """A poll acknowledges what the one before it took, committed or not: as `auto-acknowledge` does."""
    right = QueueSource.poll

    def faulty(self: QueueSource, *arguments: Any) -> Any:
        polled = right(self, *arguments)
        for partition in polled.next_offsets:
            self.acknowledge({partition: Position(self.offsets[partition], "")})
        return polled

    patch.setattr(QueueSource, "poll", faulty)


def what_was_taken_here_is_settled_when_it_comes_again(patch: Patch) -> None:
    """It may not be stored: the partition was lost before the commit, or its takeover is put off."""
    right = QueueSource.seek

    def faulty(self: QueueSource, partition: Partition, offset: int, source_state: str = "") -> None:
        taken = list(self._taken.get(partition, ()))
        right(self, partition, offset, source_state)
        self._taken[partition] |= dict.fromkeys(taken)

    patch.setattr(QueueSource, "seek", faulty)


# The reset


def initial_state_not_marked(patch: Patch) -> None:
    """What comes again after a reset to the initial state looks as if it came for the first time."""
    right = guardian.partitions.begin_initial_state
    patch.setattr(
        "guardian.partitions.begin_initial_state",
        lambda header, *arguments: replace(right(header, *arguments), heal_offset=header.heal_offset),
    )


def initial_state_numbers_from_the_start(patch: Patch) -> None:
    """Numbers begin again after a reset to the initial state, and sinks with a marker pass over them."""
    right = guardian.partitions.begin_initial_state
    patch.setattr("guardian.partitions.begin_initial_state", lambda *arguments: replace(right(*arguments), highest_number=0))


def units_kept_in_a_reset(patch: Patch) -> None:
    """The actors go on with what was never committed."""
    patch.setattr("guardian.partitions.Partitions.drop_all", lambda self: self.owned.clear())


def positions_kept_in_a_reset(patch: Patch) -> None:
    """The partitions are not taken over anew: the source goes on behind what was never committed."""
    patch.setattr("guardian.partitions.Partitions.drop_all", lambda self: None)
