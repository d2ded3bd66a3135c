"""The events of jobs on a topic of Kafka: by their numbers, each once."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from connectors.kafka.core.fencing import Committed
from connectors.kafka.core.records import ProducerRecord
from connectors.kafka.settings import KafkaSettings
from delivery.single_publisher import SinglePublisher

_AT_ONCE = 500


class _Event(msgspec.Struct):
    number: int
    job: str


class Mark(Protocol):
    """The number of the last published event, where it is not forgotten. Less than the number is harmless for a week."""

    @property
    def ledger(self) -> str:
        """What tells the ledger whose events they are from others."""
        ...

    def find(self) -> int: ...

    def note(self, number: int) -> None: ...


class EventTopic:
    """Any number of processes may publish: one after the other does. The number of the last event is the publisher's."""

    def __init__(self, settings: KafkaSettings, topic: str, group: str, mark: Mark) -> None:
        self._publisher = SinglePublisher(settings, topic, group)
        self._topic, self._mark = topic, mark
        self._published = 0

    def publish(self, events_after: Callable[[int, int], Sequence[bytes]]) -> int:
        """Publish the events that are missing, and return how many. `events_after` gets a number and how many at most.

        Nothing is connected before there is an event.

        Raises:
            TransportUnavailable, TransportRefused: They are not published; the next call tries again.
        """
        if not events_after(self._published, 1):
            return 0
        if not self._publisher.has_begun:
            found = self._publisher.begin()
            # Brokers delete the offset of a group that was not used for a week; the ledger remembers it, perhaps a little less.
            # A ledger that was made anew has published nothing, whatever the one before it has.
            is_ours = found is not None and found.metadata == self._mark.ledger
            self._published = max(found.offset if found is not None and is_ours else 0, self._mark.find())
        bodies = events_after(self._published, _AT_ONCE)
        if not bodies:
            return 0
        events = [msgspec.json.decode(body, type=_Event) for body in bodies]
        records = [ProducerRecord(self._topic, each.job.encode(), (), body) for each, body in zip(events, bodies, strict=True)]
        self._publisher.commit(records, Committed(events[-1].number, self._mark.ledger))
        self._published = events[-1].number
        self._mark.note(self._published)
        return len(bodies)
