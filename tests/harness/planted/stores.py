"""Faults that a store on topics prevents, as mutations of the real code, each with a seed whose simulated run notices it.

    PYTHONPATH=tests:. .venv/bin/python -m harness.planted.stores

prints them as a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harness.planted import kafka
from harness.planted.protocol import Fault, Patch
from msgspec.structs import replace

import notification_service.aggregation.payments.payments_of_message as payments
from guardian.ports import PublishRefused
from notification_service.aggregation import kafka_store
from notification_service.aggregation.core import Turn
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_store import KafkaStore, Restoring, _output
from notification_service.aggregation.payments.payments_of_message import with_member
from notification_service.aggregation.port import Step, Store
from notification_service.aggregation.runner import StoreRunner
from notification_service.connectors.kafka.topic_reader import CommittedReader
from resequencer.clock import SteadyClock
from resequencer.record import Partition


def counter_instead_of_transitions(patch: Patch) -> None:
    """Each status counts, whatever its payment had before: a doubled command counts twice."""

    def faulty(head: Any, before: Any, after: Any, stated: Any, finals: Any) -> Any:
        counted = with_member(head, None, after, stated, finals)
        return counted if before is None else replace(counted, members=head.members)

    patch.setattr(payments, "with_member", faulty)


def callback_after_the_commit(patch: Patch) -> None:
    """What follows from a change leaves in a transaction of its own, behind that of the change."""

    def faulty(self: KafkaStore, steps: Mapping[Partition, Step]) -> None:
        changes = {each: Step(Turn(step.turn.changes, (), step.turn.applied), step.next_offset) for each, step in steps.items()}
        right(self, changes)
        output = {each: Step(Turn({}, step.turn.output), step.next_offset) for each, step in steps.items() if step.turn.output}
        if output:
            right(self, output)

    right = KafkaStore.commit
    patch.setattr(KafkaStore, "commit", faulty)


def jump_of_the_clock_believed(patch: Patch) -> None:
    """A worker goes by its wall clock, whatever that says."""
    patch.setattr(SteadyClock, "now", lambda self: self._wall())


def store_read_short_of_its_end(patch: Patch) -> None:
    """The copy is brought up to what is decided, although a marker may come later than the position that it belongs to."""
    patch.setattr(CommittedReader, "decided_ends", lambda self, _: self.ends())


def values_kept_after_an_abort(patch: Patch) -> None:
    """The copy is written before the transaction, and nobody takes it back."""

    def faulty(self: KafkaStore, steps: Mapping[Partition, Step]) -> None:
        for partition, step in steps.items():
            self._keep(partition, step)
        right(self, steps)

    right = KafkaStore.commit
    patch.setattr(KafkaStore, "commit", faulty)


def copy_notes_the_end_without_the_proof_of_a_commit(patch: Patch) -> None:
    """How far a copy is gets noted before its transaction: a worker that stood still takes another's values for its own."""

    def faulty(self: KafkaStore, partitions: Collection[Partition]) -> dict[Partition, int]:
        for partition, end in right(self, partitions).items():
            kafka_store.note_read(self._owned[partition], end, kafka_store.seconds_of(self._clock))
        return {}

    right = KafkaStore._find_ends
    patch.setattr(KafkaStore, "_find_ends", faulty)


def no_new_metadata_per_transaction(patch: Patch) -> None:
    """Two transactions may have the same position, so that it does not tell which of them was committed."""

    def faulty(partition: Partition, step: Step, _: str) -> Any:
        return _output(partition, step, '["",0]')

    patch.setattr("notification_service.aggregation.kafka_store._output", faulty)


def what_is_due_leaves_without_an_offset(patch: Patch) -> None:
    """A report of a deadline moves no position. A transaction without a position is not fenced."""
    kafka.nothing_leaves_with_an_offset_that_stands(patch)


def due_before_all_is_applied(patch: Patch) -> None:
    """Instants fire although commands that were there by then are not applied yet."""
    patch.setattr(StoreRunner, "_caught_up", lambda self, _: list(self._read_to))


def due_by_the_time_after_the_poll(patch: Patch) -> None:
    """Instants fire up to now, and not up to the beginning of the poll, since when commands may have come."""

    def faulty(self: StoreRunner, store: Store) -> None:
        clock, begun = self._clock, self._clock.now()
        polled = store.poll(self._at_once, 0)
        self._ends = polled.log_ends
        self._commit(store, self._applied_turns(store, polled, begun))
        for partition in self._caught_up(store):
            now = clock.now()
            self._commit(
                store, {partition: Step(self._processor.wake(store.values(partition), now, now), self._read_to[partition])}
            )

    patch.setattr(StoreRunner, "_take", faulty)


def copy_shared_by_two_workers(patch: Patch) -> None:
    """All workers have one directory, and overwrite each other's values."""

    def faulty(self: KafkaStore, settings: Any, directory: Any, clock: Any) -> None:
        right(self, settings, directory.with_name("worker-0"), clock)

    right = KafkaStore.__init__
    patch.setattr(KafkaStore, "__init__", faulty)


def restored_before_the_position_is_read(patch: Patch) -> None:
    """An earlier owner commits after its values were read, and before its position is."""

    def faulty(self: KafkaStore, partition: Partition) -> int:
        self._waiting.add(partition)
        file = ValuesFile(self._directory / f"partition-{partition.number}.db", is_copy=True)
        try:
            self._restoring.restore(partition.number, file, 0.5, 5.0)
            position = self._transport.position(partition)
            offset = self._transport.start_offset(partition) if position is None else position.offset
            self._transport.seek(partition, offset)
        except BaseException:
            file.close()
            raise
        self._owned[partition], self._noted_at[partition] = file, 0.0
        self._waiting.discard(partition)
        return offset

    patch.setattr(KafkaStore, "take_over", faulty)


def copy_of_any_age_is_brought_up_to_date(patch: Patch) -> None:
    """A copy is used for so long that the topic has forgotten what was deleted since."""
    patch.setattr(kafka_store, "_SAFE_PART", 1_000)


def noted_end_is_read_past(patch: Patch) -> None:
    """A copy is read on from behind the offset that it notes."""

    def faulty(self: Restoring, file: ValuesFile, topic_id: Any, begin: int, end: int) -> Any:
        found = right(self, file, topic_id, begin, end)
        return None if found is None else found._replace(next_offset=min(found.next_offset + 1, end))

    right = Restoring._find_noted
    patch.setattr(Restoring, "_find_noted", faulty)


def goes_on_after_an_unknown_outcome(patch: Patch) -> None:
    """After a commit without an answer the partitions are not taken over anew: their copies may lack what was committed."""

    def faulty(self: StoreRunner, error: Exception) -> None:
        self._problem = str(error)
        self._wait(1)

    patch.setattr(StoreRunner, "_stand_still", faulty)


def a_refused_commit_is_taken_for_done(patch: Patch) -> None:
    """The copy keeps what the brokers have refused."""

    def faulty(self: KafkaStore, steps: Mapping[Partition, Step]) -> None:
        try:
            right(self, steps)
        except PublishRefused:
            for partition, step in steps.items():
                self._keep(partition, step)
            raise

    right = KafkaStore.commit
    patch.setattr(KafkaStore, "commit", faulty)


def the_topics_deletions_are_not_read(patch: Patch) -> None:
    """A restore takes over values only, and not that they were deleted."""

    def faulty(fetched: Any) -> Any:
        return right(fetched) if fetched.value else None

    right = kafka_store.read_value
    patch.setattr(kafka_store, "read_value", faulty)


def members_are_left_when_a_group_is_swept(patch: Patch) -> None:
    """The head goes on to be swept after the first portion of its members."""
    patch.setattr("notification_service.aggregation.core._FORGOTTEN_AT_ONCE", 1)
    patch.setattr(ValuesFile, "members", lambda *_: ["u0"])


def dead_letters_outside_of_the_transaction(patch: Patch) -> None:
    """Dead letters leave in a transaction of their own, behind that of the commands."""

    def faulty(self: KafkaStore, steps: Mapping[Partition, Step]) -> None:
        def split(step: Step, *, letters: bool) -> Step:
            found: Sequence[Any] = [each for each in step.turn.output if hasattr(each, "reason") == letters]
            return Step(Turn({} if letters else step.turn.changes, found), step.next_offset)

        right(self, {each: split(step, letters=False) for each, step in steps.items()})
        with_letters = {each: split(step, letters=True) for each, step in steps.items()}
        if any(each.turn.output for each in with_letters.values()):
            right(self, with_letters)

    right = KafkaStore.commit
    patch.setattr(KafkaStore, "commit", faulty)


SEEDS: dict[Fault, int] = {
    counter_instead_of_transitions: 0,
    callback_after_the_commit: 0,
    jump_of_the_clock_believed: 0,
    store_read_short_of_its_end: 91,
    values_kept_after_an_abort: 0,
    copy_notes_the_end_without_the_proof_of_a_commit: 25,
    no_new_metadata_per_transaction: 149,
    what_is_due_leaves_without_an_offset: 0,
    due_before_all_is_applied: 0,
    due_by_the_time_after_the_poll: 52,
    copy_shared_by_two_workers: 246,
    restored_before_the_position_is_read: 90,
    copy_of_any_age_is_brought_up_to_date: 521,
    noted_end_is_read_past: 0,
    goes_on_after_an_unknown_outcome: 1,
    a_refused_commit_is_taken_for_done: 0,
    the_topics_deletions_are_not_read: 10,
    members_are_left_when_a_group_is_swept: 3,
    dead_letters_outside_of_the_transaction: 0,
}


def name_of(fault: Fault) -> str:
    return fault.__name__.replace("_", " ")


def find_fault(name: str) -> Fault:
    """Return the fault of this name.

    Raises:
        ValueError: There is no such fault.
    """
    known = {each.__name__: each for each in SEEDS}
    if name not in known:
        raise ValueError(name)
    return known[name]


def as_table() -> str:
    """Return all faults as a table of Markdown."""
    rows = [f"| {name_of(fault)} | {seed} |" for fault, seed in SEEDS.items()]
    return "\n".join(("| fault | seed |", "|---|---|", *rows))


if __name__ == "__main__":
    print(as_table())
