"""What delivery publishes on topics of Kafka, in transactions that say how far it is. One process at a time does so."""

from collections.abc import Sequence
from contextlib import closing

import msgspec
from kafka import errors
from kafka.structs import ConsumerGroupMetadata

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.client import to_transport_error
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.producer import FENCED, NotTaken, TransactionalProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.delivery.core.jobs import JobEvent
from notification_service.delivery.core.published_events import EventLog, find_event, is_of, next_events
from notification_service.delivery.schedules.core import Progress, Request, decode_progress
from notification_service.delivery.schedules.sink import ProgressUnreadable, ScheduleBusy
from resequencer.record import Partition

_SIMPLE_MEMBER = (-1, "", None)
"""Generation, member and instance of a group without members, which only keeps offsets."""


class PublisherFenced(TransportUnavailable):
    """Another process has begun to publish. Nothing of the last call was published."""


class SinglePublisher:
    """The number and the text are an offset of `group` and its metadata, committed in the transaction of the records.

    All processes use the group's name as their transactional id: a process that begins fences the others before it reads.
    """

    def __init__(self, settings: KafkaSettings, topic: str, group: str) -> None:
        # Each question has a client of its own. It first finds the group's broker: half a second is too short on a busy machine.
        waits = {"undecided_wait_ms": settings.call_timeout_ms}
        self._settings = msgspec.structs.replace(settings, consumer={**settings.consumer, "group_id": group}, **waits)
        self._topic, self._group = topic, group
        self._producer: TransactionalProducer | None = None

    @property
    def has_begun(self) -> bool:
        return self._producer is not None

    def find(self) -> Committed | None:
        """Return what was committed last; None if nothing was. Other processes are not disturbed.

        Raises:
            TransportUnavailable, TransportRefused: It cannot be read, perhaps because a transaction is under way.
        """
        with closing(LogReader(self._settings)) as reader:
            return reader.position(Partition(self._topic, 0), None)

    def begin(self) -> Committed | None:
        """End what another process has under way, and return what was committed last. Raises as `find` does."""
        self.discard()
        options = {**self._settings.producer, "transactional_id": self._group}
        self._producer = TransactionalProducer(options, self._settings.transaction_timeout_ms, f"topic {self._topic}")
        try:
            return self.find()
        except BaseException:
            self.discard()
            raise

    def commit(self, records: Sequence[ProducerRecord], progress: Committed) -> None:
        """Publish the records together with the progress behind them.

        Raises:
            PublisherFenced: Another process publishes by now.
            TransportUnavailable, TransportRefused: It is not known whether they are published. Begin again.
        """
        assert self._producer is not None, "it has begun"
        group = ConsumerGroupMetadata(self._group, *_SIMPLE_MEMBER)
        try:
            self._producer.commit(records, {Partition(self._topic, 0): progress}, group)
        except FENCED as error:
            self.discard()
            raise PublisherFenced(f"another process publishes to {self._topic} for {self._group}") from error
        except (NotTaken, errors.KafkaError) as error:
            self.discard()
            reason = error.error if isinstance(error, NotTaken) else error
            raise to_transport_error(self._topic, reason) from error
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Publish no more from here. What is not committed by now never is."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard()


_AT_ONCE = 500


class EventTopic:
    """Any number of processes may publish: one after the other does. The number of the last event is the publisher's."""

    def __init__(self, settings: KafkaSettings, topic: str, group: str, log: EventLog) -> None:
        self._publisher = SinglePublisher(settings, topic, group)
        self._settings, self._topic, self._log = settings, topic, log
        self._number = 0
        self._published: list[JobEvent] = []

    def publish(self) -> int:
        """Publish the events that are missing, and return how many. Nothing is connected before there is an event.

        Raises:
            TransportUnavailable, TransportRefused: They are not published; the next call tries again.
        """
        mark = self._log.find()
        if not self._log.after(mark.done, 1):
            return 0
        if not self._publisher.has_begun:
            found = self._publisher.begin()
            # Brokers delete the offset of a group that was not used for a week; the ledger remembers it, perhaps a little less.
            # A ledger that was made again has published nothing, whatever the one before it has.
            is_ours = found is not None and found.metadata == self._log.ledger
            self._number = found.offset if found is not None and is_ours else 0
            try:
                # Others have published meanwhile, and have noted it, or died before.
                mark = self._log.find()
                self._published = self._behind(mark.compared)
            except BaseException:
                self._publisher.discard()
                raise
        waiting = self._log.after(mark.done, _AT_ONCE)
        if not waiting:
            return 0
        following = next_events(self._log, mark, waiting, self._published, self._number)
        if following.events:
            records = [ProducerRecord(self._topic, each.job.encode(), (), msgspec.json.encode(each)) for each in following.events]
            self._publisher.commit(records, Committed(following.mark.number, self._log.ledger))
        self._number = following.mark.number
        self._published += following.events  # Until that is noted.
        self._log.note(following.mark)
        self._published = [each for each in self._published if each.number > following.mark.compared]
        return len(following.events)

    def _behind(self, number: int) -> list[JobEvent]:
        """Return the events on the topic that may be of this service and have a higher number."""
        with closing(CommittedReader(self._settings.without_facts(), [self._topic])) as reader:
            events = (find_event(each.value or b"") for _, some in reader.read(reader.ends()) for each in some)
            return [each for each in events if each is not None and each.number > number and is_of(each, self._log)]


class TopicSink:
    """The progress is the metadata of an offset of `group`; the offset counts the requests of all ticks."""

    def __init__(self, settings: KafkaSettings, schedule: str, topic: str, group: str) -> None:
        self._schedule, self._topic, self._group = schedule, topic, group
        self._publisher = SinglePublisher(settings, topic, group)

    def find(self) -> Progress | None:
        return self._decoded(self._publisher.find())

    def begin(self) -> Progress | None:
        return self._decoded(self._publisher.begin())

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        records = [ProducerRecord(self._topic, each.key.encode(), each.headers, each.value) for each in requests]
        try:
            self._publisher.commit(records, Committed(progress.total, progress.encode()))
        except PublisherFenced as error:
            raise ScheduleBusy(self._schedule) from error

    def end(self) -> None:
        self._publisher.discard()

    def count_waiting(self) -> None:
        """The receiver's lag shows it."""

    def _decoded(self, committed: Committed | None) -> Progress | None:
        try:
            return None if committed is None else decode_progress(committed.metadata)
        except ValueError as error:
            raise ProgressUnreadable(self._schedule, f"group {self._group}", str(error)) from error
