"""The events of jobs on a topic of Kafka: by their numbers, each once."""

from contextlib import closing

import msgspec

from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.delivery.core.jobs import JobEvent
from notification_service.delivery.core.published_events import EventLog, find_event, is_of, next_events
from notification_service.delivery.single_publisher import SinglePublisher

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
            # A ledger that was made anew has published nothing, whatever the one before it has.
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
