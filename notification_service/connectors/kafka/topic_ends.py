"""Reads the ends of all topics together with the group's positions, for commands that copy the topics."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from time import monotonic

import msgspec

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Right, Topics
from resequencer.clock import Instant
from resequencer.record import Partition

_TRIES_SECONDS = 5


class TopicEnds(msgspec.Struct, frozen=True):
    """`starts` and `ends` are those of the logs' decided parts. `positions` are the group's in the input, where there are any.

    `written` are the ends of the logs; all output caused by records before the positions lies before them. `counted` are the
    positions in the facts up to which they are counted for groups. No report before the ends stands on a fact behind them.
    """

    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    written: Mapping[Partition, int]
    positions: Mapping[Partition, int]
    counted: Mapping[Partition, int] = {}

    @property
    def is_decided(self) -> bool:
        """Return whether no open transaction was in the logs."""
        return all(self.ends[each] >= end for each, end in self.written.items())


class TopicEndsReader:
    """Needs only Read on the topics and Describe on the groups. `facts_group` reads the facts, if there are any.

    Any call but `close` may raise TransportUnavailable or TransportRefused.
    """

    def __init__(self, settings: KafkaSettings, facts_group: str = "") -> None:
        self._settings = settings
        self._topics = Topics(settings, Right.READ)
        self._committed = LogReader(settings)
        ours = msgspec.structs.replace(settings, consumer={**settings.consumer, "group_id": facts_group})
        self._counting = LogReader(ours) if facts_group and settings.topics.facts else None
        self._written = LogReader(settings.uncommitted())

    def look(self) -> TopicEnds:
        """Read positions and ends. Positions come first, so that the output up to them lies before `written`."""
        topics = self._settings.topics
        self._topics.look()
        positions = self._positions(self._committed, topics.input)
        counted = {} if self._counting is None else self._positions(self._counting, topics.facts)
        partitions = [each for topic in topics.all for each in self._committed.partitions(topic)]
        written = self._ends(self._written, partitions)
        ends = self._ends(self._committed, partitions)
        return TopicEnds(self._committed.starts(partitions), ends, written, positions, counted)

    def again(self, topic_ends: TopicEnds) -> TopicEnds:
        """Return the same with the current decided ends; call it until all that was written is decided."""
        return msgspec.structs.replace(topic_ends, ends=self._ends(self._committed, topic_ends.written))

    def find_since(self, topic_ends: TopicEnds, instant: Instant) -> Mapping[Partition, int]:
        """Return the first offset with a timestamp of `instant` or later, for the partitions that have one."""
        return self._committed.find_since(topic_ends.written, instant)

    def close(self) -> None:
        for each in (self._topics, self._committed, self._written):
            with suppress(TransportUnavailable):
                each.close()
        if self._counting is not None:
            with suppress(TransportUnavailable):
                self._counting.close()

    def _ends(self, log: LogReader, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the ends of reports first, then of all else: so the facts that reports stand on are before their ends."""
        reports = [each for each in partitions if each.topic == self._settings.topics.reports]
        first = log.ends(reports)
        return {**log.ends([each for each in partitions if each not in first]), **first}

    def _positions(self, log: LogReader, topic: str) -> dict[Partition, int]:
        found = {each: self._position(log, each) for each in log.partitions(topic)}
        return {each: offset for each, offset in found.items() if offset is not None}

    def _position(self, log: LogReader, partition: Partition) -> int | None:
        """Return the position. It is undecided for moments only: a running worker ends its transactions within milliseconds."""
        until = monotonic() + _TRIES_SECONDS
        while True:
            try:
                found = log.position(partition, asked_under=object())
            except TransportUnavailable:
                if monotonic() > until:
                    raise
            else:
                return None if found is None else found.offset
