"""A transport made of a source and one or several sinks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec.structs import replace

from guardian.ports import (
    Channel,
    NotPublished,
    Participant,
    PartitionOutput,
    Polled,
    Position,
    PublishRefused,
    TransportStatus,
    TransportUnavailable,
)
from notification_service.connectors.region_port import Sink, Source
from resequencer.errors import ResequencerError
from resequencer.record import Partition


class Route(NamedTuple):
    """A sink, its name for operators, and the channels whose records leave through it."""

    name: str
    sink: Sink
    channels: frozenset[Channel]


class RegionTransport:
    """Implements the port of transports.

    A publication goes to the sinks that do not remember, then to those that do, and is acknowledged to the source last. So a
    participant is at the same publication as the one after it, or one ahead. The region's position is that of the source, if it
    remembers, else of the sink that is furthest behind: everything before it was published through each sink. Others may have
    more; they pass over records that come again, if they remember. `source_name` is the source's name for operators.

    Raises of all calls: as the port's.
    """

    def __init__(self, source: Source, routes: Sequence[Route], source_name: str = "source") -> None:
        assert routes, "output needs a sink"
        self._source = source
        self._source_name = f"source {source_name}"
        self._problems: dict[str, str] = {}
        self._routes = sorted(routes, key=lambda each: each.sink.capabilities.remembers)
        self._lost: set[Partition] = set()
        self._sought: set[Partition] = set()
        self._undecided: dict[str, set[Partition]] = {each.name: set() for each in routes}

    @property
    def remembers(self) -> bool:
        """Whether a participant keeps positions."""
        return self._source.capabilities.remembers or any(each.sink.capabilities.remembers for each in self._routes)

    def standing(self) -> TransportStatus:
        found = self._source.standing()
        notes = [note for each in self._routes for note in each.sink.notes]
        window, participants = self._source.capabilities.window, tuple(self._participants())
        return replace(found, notes=(*found.notes, *notes), remembers=self.remembers, window=window, participants=participants)

    def assignment(self) -> list[Partition]:
        """As the port describes. A partition for which a sink refused a publication is left out once, too."""
        with self._watching(self._source_name):
            assigned = [each for each in self._source.assignment() if each not in self._lost]
        self._lost.clear()
        return assigned

    def position(self, partition: Partition) -> Position | None:
        """As the port describes.

        Each sink is asked, also where the source knows the position: asking fences the sink against an earlier owner. Sinks are
        compared by their numbers and not by their order, which the configuration may have changed.
        """
        for noted in (self._sought, *self._undecided.values()):
            noted.discard(partition)
        known = []
        for each in self._routes:
            with self._watching(each.name):
                if (found := each.sink.position(partition)) is not None:
                    known.append(found)
        with self._watching(self._source_name):
            own = self._source.position(partition) if self._source.capabilities.remembers else None
        region = own if own is not None else min(known, key=_progress, default=None)
        if region is None:
            return None
        highest = max((number for each in known for number in (each.highest, *each.beyond)), default=0)
        is_whole = len(known) == sum(each.sink.capabilities.remembers for each in self._routes)
        return replace(region, beyond=frozenset(), highest=highest, is_whole=is_whole)

    def source(self, partition: Partition) -> str:
        return self._source.source(partition)

    def start_offset(self, partition: Partition) -> int:
        return self._source.start_offset(partition)

    def end_offset(self, partition: Partition) -> int:
        return self._source.end_offset(partition)

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        with self._watching(self._source_name):
            self._source.seek(partition, offset, source_state)
        self._sought.add(partition)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        with self._watching(self._source_name):
            return self._source.poll(max_records, timeout_ms, resting)

    def wake(self) -> None:
        self._source.wake()

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        read = {each.partition: each.position for each in outputs if self._is_read(each)}
        if read:
            with self._watching(self._source_name):
                self._source.check_owned(read.keys())
        try:
            for route in self._routes:
                self._send(route, outputs)
            if read:
                with self._watching(self._source_name):
                    self._source.acknowledge(read)
        except PublishRefused:
            # Another worker may have owned them meanwhile, so they are taken over again. A takeover that publishes is postponed.
            self._lost.update(each.partition for each in outputs if each.partition in self._sought)
            raise

    def close(self) -> None:
        """Close all participants. One that fails to close ends with the process."""
        for close in (self._source.close, *(route.sink.close for route in self._routes)):
            with suppress(ResequencerError):
                close()

    def _participants(self) -> Iterator[Participant]:
        source, of_source = self._source_name, self._source.capabilities
        yield Participant(source, "source", of_source.can_replay, None, of_source.remembers, self._problems.get(source))
        for route in self._routes:
            found = route.sink.capabilities
            yield Participant(route.name, "sink", None, found.is_transactional, found.remembers, self._problems.get(route.name))

    @contextmanager
    def _watching(self, participant: str) -> Iterator[None]:
        """Note whether the last call of a participant failed, for operators."""
        try:
            yield
        except ResequencerError as error:
            self._problems[participant] = str(error)
            raise
        self._problems.pop(participant, None)

    def _is_read(self, output: PartitionOutput) -> bool:
        """Whether the source may acknowledge the records of this output.

        What a source without replay took before this takeover has numbers of its own, and may not be stored. It acknowledges
        with the last portion of an interval: while a message remains, the broker shows to the next owner that there is work.
        """
        return self._source.capabilities.can_replay or (output.is_last and output.partition in self._sought)

    def _send(self, route: Route, outputs: Sequence[PartitionOutput]) -> None:
        """Publish through one sink.

        That nothing was published through it is passed on, so that the next portion is smaller. The sinks before it pass over
        what they have. But a sink whose outcome is not known must get the same once more.
        """
        partitions, undecided = {each.partition for each in outputs}, self._undecided[route.name]
        try:
            with self._watching(route.name):
                route.sink.publish([_part(each, route.channels) for each in outputs])
        except NotPublished as error:
            undecided -= partitions
            if any(not each.isdisjoint(partitions) for each in self._undecided.values()):
                raise TransportUnavailable(f"{route.name}: {error}") from error
            raise
        except TransportUnavailable:
            undecided |= partitions
            raise
        undecided -= partitions


def _progress(position: Position) -> tuple[int, bool]:
    """The order of sinks. Of those with the same number, the first knows the storage commit, if one does."""
    return position.highest, not position.metadata


def _part(output: PartitionOutput, channels: Collection[Channel]) -> PartitionOutput:
    return replace(output, records=tuple(each for each in output.records if each.channel in channels))


def routes_of(sinks: Mapping[str, Sink]) -> list[Route]:
    """Return the routes to sinks by name. The first takes all channels, the others the notifications."""
    channels = [frozenset(Channel), *[frozenset({Channel.NOTIFICATIONS})] * (len(sinks) - 1)]
    return [Route(f"sink {name}", sink, taken) for (name, sink), taken in zip(sinks.items(), channels, strict=True)]
