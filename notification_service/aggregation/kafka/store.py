"""A store on topics. Values, output and the offsets of the commands are one transaction."""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from uuid import uuid4

from kafka import KafkaProducer

from guardian.ports import OutputRecord, PartitionOutput, Polled, Position, TransportRefused, TransportUnavailable
from notification_service.aggregation.commands import member_headers
from notification_service.aggregation.core import Values, numbered
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka.restoring import Restoring, note_read, seconds_of, value_record
from notification_service.aggregation.port import Step
from notification_service.connectors.kafka.client import make_client, translated
from notification_service.connectors.kafka.offsets import LogReader
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.sink import KafkaTransport
from resequencer.clock import SteadyClock
from resequencer.errors import ResequencerError
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.aggregation")

_NOTE_SECONDS = 10.0
"""How often it is noted how far a local copy is. What was written since is read again after a crash."""

_DECIDED_SECONDS, _READ_SECONDS = 0.5, 5.0
"""How long a takeover waits for an open transaction, and how long it reads, before the other partitions have their turn."""


class KafkaStore:
    """Commands are `settings.topics.input`, values go to `topics.values`, completions to `topics.notifications`.

    Commands and values have the same partitions. `directory` holds the copies of the values of partitions that this worker has
    had: a file for each partition. No other process may use it. A copy holds nothing that was not committed. `clock` is one that
    a jump does not move at once.
    """

    def __init__(self, settings: KafkaSettings, directory: Path, clock: SteadyClock) -> None:
        self._transport = KafkaTransport(settings, clock)
        self._values_topic = settings.topics.values
        self._log = LogReader(settings)
        self._restoring = Restoring(settings, clock)
        self._clock = clock
        self._directory = directory
        self._owned: dict[Partition, ValuesFile] = {}
        self._noted_at: dict[Partition, float] = {}
        self._waiting: set[Partition] = set()
        self._commits = 0
        self._token = uuid4().hex[:12]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for an operator about problems that do not stop the store."""
        return (*self._transport.standing().notes, *self._restoring.notes)

    def assignment(self) -> Collection[Partition]:
        return self._transport.assignment()

    def take_over(self, partition: Partition) -> int:
        """As the port describes. The position is read first: after that no earlier owner can commit any more.

        A takeover that takes long raises TransportUnavailable, and the next one goes on with it.
        """
        self._waiting.add(partition)
        position = self._transport.position(partition)
        offset = self._transport.start_offset(partition) if position is None else position.offset
        file = ValuesFile(self._directory / f"partition-{partition.number}.db", is_copy=True)
        try:
            read = self._restoring.restore(partition.number, file, _DECIDED_SECONDS, _READ_SECONDS)
            if position is None:
                self._refuse_values(partition, file)
            self._transport.seek(partition, offset)
        except BaseException:
            _put_away(file)
            raise
        self._owned[partition], self._noted_at[partition] = file, monotonic()
        self._waiting.discard(partition)
        _LOG.info("took over %s, its values were read from offset %d to %d", partition, read.start, read.stop)
        return offset

    @property
    def shares_values(self) -> bool:
        return False

    def values(self, partition: Partition) -> Values:
        return self._owned[partition]

    def let_go(self, partition: Partition) -> None:
        self._waiting.add(partition)
        if (file := self._owned.pop(partition, None)) is not None:
            _put_away(file)

    def poll(self, most: int, timeout_ms: int) -> Polled:
        return self._transport.poll(most, timeout_ms, self._waiting)

    def commit(self, steps: Mapping[Partition, Step]) -> None:
        self._commits += 1
        # No two transactions have the same position: that tells which of them was committed.
        metadata = f'["{self._token}",{self._commits}]'
        began, ends = seconds_of(self._clock), self._find_ends(steps)
        self._transport.publish([_output(partition, step, metadata) for partition, step in steps.items()])
        for partition, step in steps.items():
            self._keep(partition, step)
        for partition, end in ends.items():
            note_read(self._owned[partition], end, began if self._clock.was_trusted else None)
            self._noted_at[partition] = monotonic()

    def close(self) -> None:
        for each in list(self._owned):
            self.let_go(each)
        self._transport.close()
        self._restoring.close()
        with suppress(ResequencerError):
            self._log.close()

    def _refuse_values(self, partition: Partition, file: ValuesFile) -> None:
        """Refuse values whose position is lost: the commands that they are made of would be applied again."""
        if file.is_empty():
            return
        problem = f"the group has no position, but there are values in topic {self._values_topic} that were made of its commands"
        go_on = "To go on, set the group's position (kafka-consumer-groups --reset-offsets)"
        raise TransportRefused(str(partition), f"{problem}. {go_on}; to begin anew, delete that topic and create it again")

    def _keep(self, partition: Partition, step: Step) -> None:
        if step.turn.changes:
            with self._owned[partition].writing() as writing:
                writing.put(step.turn.changes)

    def _find_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return now and then how far the copies are, for a transaction that follows.

        Once it is committed, all below is in the copy: no other worker has owned the partition in between. Without that proof
        a worker that stood still would take what another has written for its own.
        """
        now = monotonic()
        due = [each for each in partitions if now - self._noted_at[each] >= _NOTE_SECONDS]
        names = {Partition(self._values_topic, each.number): each for each in due}
        return {names[name]: end for name, end in self._log.ends(names).items()}


def _output(partition: Partition, step: Step, metadata: str) -> PartitionOutput:
    values = [value_record(number, *each, partition.number) for number, each in enumerate(step.turn.changes.items(), 1)]
    records: list[OutputRecord] = [*values, *numbered(step.turn.output, len(values) + 1)]
    return PartitionOutput(partition, tuple(records), Position(step.next_offset, metadata))


def _put_away(file: ValuesFile) -> None:
    """Close a copy; one that is damaged is deleted, so that it is read anew."""
    file.close()
    if file.is_damaged:
        with suppress(TransportUnavailable):  # The disk fails; the damage is found again.
            file.clear()


class TopicCommands:
    """Sends to the topic of commands, with an idempotent producer that is no transaction's."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.input
        self._timeout_seconds = settings.call_timeout_ms / 1_000
        options = {name: value for name, value in settings.producer.items() if name != "transactional_id"}
        options.pop("transaction_timeout_ms", None)
        self._producer: KafkaProducer = make_client("the brokers", KafkaProducer, options)

    def update(self, key: str, member: str | None, body: bytes) -> None:
        with translated(f"topic {self._topic}"):
            self._producer.send(self._topic, body, key.encode(), list(member_headers(member))).get(self._timeout_seconds)

    def close(self) -> None:
        self._producer.close(timeout=self._timeout_seconds)
