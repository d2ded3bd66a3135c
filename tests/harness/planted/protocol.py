"""Faults that the exactly-once protocol and the unit's logic prevent, planted in the code while a simulation runs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

import guardian.partitions
import resequencer.unit_codec
from guardian.calls import Dependencies
from guardian.cycle import Cycle, PreparedCommit
from guardian.owned_partition import OwnedPartition
from guardian.ports import Channel, PartitionOutput, Position, PublishRefused
from guardian.takeover import Metadata, Takeover, find_metadata, plan_takeover
from guardian.timers import Backlog
from guardian.unit_registry import UnitRegistry
from notification_service.connectors.files.output import Numbers, OutputFile, facts_name
from notification_service.connectors.files.sink import FACTS_FILE, FileSink
from resequencer.errors import OwnershipLost, PermanentError
from resequencer.storage_port import WaitKind
from resequencer.turn.decide import _refuse_known
from resequencer.turn.turn import Turn
from resequencer.unit import Entry, Unit

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def is_misplaced(problem: str) -> bool:
    """Whether the planted fault does not fit the code any more. Then the run noticed that, and not the fault."""
    return any(each in problem for each in ("TypeError", "AttributeError", "LedgerUnavailable"))


def publish_before_commit(patch: Patch) -> None:
    def faulty(self: Cycle, prepared: PreparedCommit, call: Callable[[], None], _: int) -> bool:
        owned = prepared.owned
        output = owned.output(len(owned.unpublished))
        has_left = True
        try:
            self._tools.retry.until_answered("output", partial(self._transport.publish, [output]))
        except PublishRefused:
            has_left = False
        try:
            self._tools.retry.until_answered("storage", call)
        except OwnershipLost as error:
            self.partitions.lose(owned.partition, error)
            return False
        owned.note_committed(prepared.commit, prepared.turns, self._tools.clock.now())
        if has_left:
            owned.note_published(output, self._tools.clock.now())
        return True

    patch.setattr(Cycle, "_commit_partition", faulty)


def _shift_watermark(patch: Patch, by: int) -> None:
    right = OwnedPartition.output

    def faulty(self: OwnedPartition, count: int) -> PartitionOutput:
        output = right(self, count)
        metadata = find_metadata(output.position.metadata)
        assert metadata is not None
        wrong = Metadata(metadata.token, metadata.commit, metadata.published + by)
        return msgspec.structs.replace(output, position=Position(output.position.offset, wrong.encode()))

    patch.setattr(OwnedPartition, "output", faulty)


def watermark_one_too_low(patch: Patch) -> None:
    _shift_watermark(patch, -1)


def watermark_one_too_high(patch: Patch) -> None:
    _shift_watermark(patch, 1)


def watermark_of_the_whole_with_a_portion(patch: Patch) -> None:
    """Records beyond the portion count as published."""
    patch.setattr(OwnedPartition, "_published_before", lambda self, _: self._highest_number)


def portion_from_the_end(patch: Patch) -> None:
    """The published records are not the first pending ones."""
    right = OwnedPartition.output

    def faulty(self: OwnedPartition, count: int) -> PartitionOutput:
        output = right(self, count)
        if output.records:
            self.attempt = output = msgspec.structs.replace(output, records=self.unpublished[-count:])
        return output

    patch.setattr(OwnedPartition, "output", faulty)


def pending_not_stored(patch: Patch) -> None:
    right = OwnedPartition.next_commit

    def faulty(self: OwnedPartition, *arguments: Any) -> Any:
        return msgspec.structs.replace(right(self, *arguments), added=())

    patch.setattr(OwnedPartition, "next_commit", faulty)


def deadline_not_armed_after_a_restart(patch: Patch) -> None:
    patch.setattr(UnitRegistry, "arm", lambda self, key, waits: self.waits.__setitem__(key, waits))


def deadline_begins_anew_after_a_restart(patch: Patch) -> None:
    right = resequencer.unit_codec.encode_entry

    def faulty(entry: Entry) -> Any:
        return right(msgspec.structs.replace(entry, stashed_at=entry.stashed_at + 60_000))

    patch.setattr("resequencer.turn.decide.encode_entry", faulty)


def deadline_before_the_backlog_is_read(patch: Patch) -> None:
    right = Backlog.hold
    patch.setattr(Backlog, "hold", lambda self, key, end: right(self, key, -1))


def retry_not_stored(patch: Patch) -> None:
    patch.setattr(resequencer.unit_codec, "_stored_retry", lambda retry: None)


def retry_never_woken(patch: Patch) -> None:
    right = UnitRegistry.dues

    def faulty(self: UnitRegistry, *arguments: Any) -> Any:
        dues = right(self, *arguments)
        retries = {key for key, waits in self.waits.items() if waits.kind is WaitKind.RETRY}
        return msgspec.structs.replace(dues, wakes={key: wake for key, wake in dues.wakes.items() if key not in retries})

    patch.setattr(UnitRegistry, "dues", faulty)


def duplicate_counted_before_it_is_told(patch: Patch) -> None:
    def faulty(turn: Turn, envelope: Any, digest: bytes) -> None:
        try:
            turn.unit.state = turn.strategy.handled(turn.unit.state, envelope)
            turn.is_changed = True
        except PermanentError:
            pass
        _refuse_known(turn, envelope, digest)
        for lane in turn.unit.lanes:
            turn.unstash(lane)

    patch.setattr("resequencer.turn.decide._refuse_known", faulty)


def duplicates_not_told(patch: Patch) -> None:
    patch.setattr(Unit, "find_digest", lambda self, id_hash: None)


def takeover_ignores_what_left_beyond(patch: Patch) -> None:
    def faulty(header: Any, pending: Any, position: Position | None, log: range, **named: Any) -> Takeover:
        known = position and Position(position.offset, position.metadata)
        return plan_takeover(header, pending, known, log, **named)

    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def heal_not_noticed(patch: Patch) -> None:
    patch.setattr("guardian.takeover._is_known", lambda *_: True)


def heal_does_not_mark(patch: Patch) -> None:
    right = guardian.partitions.plan_takeover

    def faulty(*arguments: Any, **named: Any) -> Takeover:
        return msgspec.structs.replace(right(*arguments, **named), heal_offset=0)

    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def stash_entry_not_removed(patch: Patch) -> None:
    right = Turn.note_unstashed

    def faulty(self: Turn, entry: Entry) -> None:
        right(self, entry)
        self.removed.clear()

    patch.setattr(Turn, "note_unstashed", faulty)


def stash_entry_not_stored(patch: Patch) -> None:
    patch.setattr(Turn, "note_stashed", lambda self, entry: None)


def unstashed_twice(patch: Patch) -> None:
    def faulty(self: Turn, envelope: Any, entry: Entry | None = None, ahead: Any = None, *, is_forced: bool = False) -> None:
        right(self, envelope, entry, ahead, is_forced=is_forced)
        if entry is not None and entry.stashed_at < self.now and self.unit.is_free:
            right(self, envelope, entry, None, is_forced=is_forced)

    right = Turn.attempt
    patch.setattr(Turn, "attempt", faulty)


def attempts_counted_for_a_server(patch: Patch) -> None:
    """An unavailable server counts as a failure like any other."""
    patch.setattr("resequencer.turn.retry.DependencyUnavailable", type("NeverRaised", (Exception,), {}))


def servers_never_tried_again(patch: Patch) -> None:
    patch.setattr(Dependencies, "take", lambda self, now, limit: iter(()))


def one_that_tried_in_vain_is_never_followed(patch: Patch) -> None:
    """The end of the unit's try for the server is not noted."""
    patch.setattr(Dependencies, "note", lambda self, key, name, now: None)


def a_try_that_was_cut_counts_as_failed(patch: Patch) -> None:
    """The try fails though its turn had used up its output budget before it called the server."""
    patch.setattr(Dependencies, "put_back", lambda self, key, now: self.note(key, self._tried_for.get(key), now))


def stash_released_while_its_server_is_unavailable(patch: Patch) -> None:
    """At its bound a unit releases the envelope that waits for the server."""
    patch.setattr("resequencer.turn.release._UNAVAILABLE", 1)


def dead_letters_count_as_handled(patch: Patch) -> None:
    """An envelope that comes again after a later dead letter is marked `late`."""
    patch.setattr("resequencer.strategies.sequence.with_handled_to", lambda observed, dead_ends, flow, highest: dead_ends)


def a_release_goes_on_as_it_began(patch: Patch) -> None:
    """A release is marked throughout with what was missing at the deadline, though it may have come since."""

    def faulty(turn: Turn, head: Entry) -> None:
        assert turn.tried is not None
        turn.incomplete, turn.released_to = turn.tried.incomplete, 1 << 60
        turn.attempt(head.envelope, head, is_forced=True)
        turn.unstash(head.lane)

    patch.setattr("resequencer.turn.release._go_on", faulty)


def every_second_dead_letter_left_out(patch: Patch) -> None:
    right = OwnedPartition.output

    def faulty(self: OwnedPartition, count: int) -> PartitionOutput:
        output = right(self, count)
        kept = tuple(each for each in output.records if each.channel.value == "notifications" or each.number % 2)
        return msgspec.structs.replace(output, records=kept)

    patch.setattr(OwnedPartition, "output", faulty)


def numbers_given_out_twice(patch: Patch) -> None:
    right = OwnedPartition._commit

    def faulty(self: OwnedPartition, *arguments: Any) -> Any:
        return msgspec.structs.replace(right(self, *arguments), highest_number=self._highest_number)

    patch.setattr(OwnedPartition, "_commit", faulty)


def rotated_without_noting_what_left(patch: Patch) -> None:
    """Lines that were appended and are not in the positions are in a file that is not read after a crash."""

    def faulty(self: FileSink) -> None:
        for output in self._outputs.values():
            if self._rotation.is_full(output):
                self._rotation.rotate(output)
        self._note_begun()

    patch.setattr(FileSink, "_rotate", faulty)


def begun_anew_without_noting_it(patch: Patch) -> None:
    """Lines that are appended to the new file are below the noted length of the old one."""

    def faulty(self: FileSink) -> None:
        for output in self._outputs.values():
            output.is_begun_again = False

    patch.setattr(FileSink, "_note_begun", faulty)


def facts_written_behind_the_positions(patch: Patch) -> None:
    """A crash in between leaves positions that count facts as published."""

    def faulty(self: FileSink, outputs: Sequence[PartitionOutput]) -> None:
        self._make_ready()
        self._rotate()
        for channel, output in self._outputs.items():
            if channel is not Channel.FACTS:
                self._append(channel, output, outputs)
        highest = self._highest | {each.partition: each.position.highest for each in outputs}
        positions = {each.partition: self._moved(each, highest[each.partition]) for each in outputs}
        before = self._highest
        self._write(self._positions | positions, highest)
        if Channel.FACTS in self._outputs:
            self._highest = before
            self._append(Channel.FACTS, self._outputs[Channel.FACTS], outputs)
            self._highest = highest

    patch.setattr(FileSink, "publish", faulty)


def facts_of_a_crash_not_found(patch: Patch) -> None:
    """Facts that were appended and are not in the positions are written again."""
    right = OutputFile.open

    def faulty(self: OutputFile, length: int) -> Numbers:
        found = right(self, length)
        return {} if self.name == facts_name(FACTS_FILE) else found

    patch.setattr(OutputFile, "open", faulty)
