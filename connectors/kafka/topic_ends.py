"""A look at all topics and the group's positions together, for whoever copies the topics."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from time import monotonic

import msgspec

from connectors.kafka.offsets import LogReader
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import Right, Topics
from connectors.port import TransportUnavailable
from domain.clock import Instant
from domain.record import Partition

_TRIES_SECONDS = 5


class TopicEnds(msgspec.Struct, frozen=True):
    """`starts` and `ends` are those of the logs' decided parts. `positions` are those of the group in the input, as far as
    there are any. All that was sent because of records before them lies before `written`.
    """

    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    written: Mapping[Partition, int]
    positions: Mapping[Partition, int]

    @property
    def is_decided(self) -> bool:
        """Whether nothing lay in an open transaction."""
        return all(self.ends[each] >= end for each, end in self.written.items())


class TopicEndsReader:
    """Needs Read on the topics and Describe on the group, and no more.

    Any call but `close` raises TransportUnavailable or TransportRefused.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topics = Topics(settings, Right.READ)
        self._committed = LogReader(settings)
        self._written = LogReader(settings.uncommitted())

    def look(self) -> TopicEnds:
        """Positions are asked for first: what they stand on was written before, though it may not be decided yet."""
        topics = self._settings.topics
        self._topics.look()
        positions = self._positions(self._committed.partitions(topics.input))
        partitions = [each for topic in topics.all for each in self._committed.partitions(topic)]
        written = self._written.ends(partitions)
        return TopicEnds(self._committed.starts(partitions), self._committed.ends(partitions), written, positions)

    def again(self, topic_ends: TopicEnds) -> TopicEnds:
        """The same with the ends as they are now: in the end all is decided that had been written."""
        return msgspec.structs.replace(topic_ends, ends=self._committed.ends(topic_ends.written))

    def find_since(self, topic_ends: TopicEnds, instant: Instant) -> Mapping[Partition, int]:
        """The first offset whose record says that it was written then or later, of those partitions that have one."""
        return self._committed.find_since(topic_ends.written, instant)

    def close(self) -> None:
        for each in (self._topics, self._committed, self._written):
            with suppress(TransportUnavailable):
                each.close()

    def _positions(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        found = {each: self._position(each) for each in partitions}
        return {each: offset for each, offset in found.items() if offset is not None}

    def _position(self, partition: Partition) -> int | None:
        """A running worker decides its transaction every few milliseconds; it is undecided only in between."""
        until = monotonic() + _TRIES_SECONDS
        while True:
            try:
                found = self._committed.position(partition, asked_under=object())
            except TransportUnavailable:
                if monotonic() > until:
                    raise
            else:
                return None if found is None else found.offset
