"""A transport made of a source and one or several sinks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from connectors.port import (
    Channel,
    NothingLeft,
    Participant,
    PartitionOutput,
    Polled,
    Position,
    PublishRefused,
    TransportStatus,
    TransportUnavailable,
)
from connectors.region.port import Sink, Source
from domain.errors import ResequencerError
from domain.record import Partition

_SOURCE = "source"


class Route(NamedTuple):
    """A sink, its name for operators, and the channels whose records leave through it."""

    name: str
    sink: Sink
    channels: frozenset[Channel]


class RegionTransport:
    """Implements the port of transports.

    A publication goes to the sinks that do not remember, then to those that do, and is acknowledged to the source last. So a
    participant is at the same publication as the one after it, or one ahead. The position of the last participant that
    remembers is the region's: everything before it has left through every sink. The sinks before it may have more; they pass over
    records that come again, if they remember.

    Raises of all calls: as the port's.
    """

    def __init__(self, source: Source, routes: Sequence[Route]) -> None:
        assert routes, "output needs a sink"
        self._source = source
        self._routes = sorted(routes, key=lambda each: each.sink.capabilities.remembers)
        self._lost: set[Partition] = set()
        self._failing: str | None = None
        """The participant whose call is not answered yet, or has failed."""

    @property
    def remembers(self) -> bool:
        """Whether a participant keeps positions."""
        return self._source.capabilities.remembers or any(each.sink.capabilities.remembers for each in self._routes)

    def standing(self) -> TransportStatus:
        found = self._source.standing()
        notes = [note for each in self._routes for note in each.sink.notes]
        return replace(found, notes=(*found.notes, *notes), remembers=self.remembers, participants=tuple(self._participants()))

    def _participants(self) -> Iterator[Participant]:
        can = self._source.capabilities
        yield Participant(_SOURCE, _words(replays=can.can_replay, remembers=can.remembers), self._failing == _SOURCE)
        for name, sink, _ in self._routes:
            of_sink = sink.capabilities
            words = _words(**{"one transaction": of_sink.is_transactional, "remembers": of_sink.remembers})
            yield Participant(name, words, self._failing == name)

    def assignment(self) -> list[Partition]:
        """As the port describes. A partition for which a sink refused a publication is left out once, too."""
        assigned = [each for each in self._source.assignment() if each not in self._lost]
        self._lost.clear()
        return assigned

    def position(self, partition: Partition) -> Position | None:
        """As the port describes. `highest` is that of the sink which is furthest.

        Each sink is asked, also where the source knows the position: asking fences the sink against an earlier owner.
        """
        known = [found for each in self._routes if (found := each.sink.position(partition)) is not None]
        own = self._source.position(partition) if self._source.capabilities.remembers else None
        region = own if own is not None else next(reversed(known), None)
        if region is None:
            return None
        return replace(region, beyond=frozenset(), highest=max((each.highest for each in known), default=0))

    def source(self, partition: Partition) -> str:
        return self._source.source(partition)

    def start_offset(self, partition: Partition) -> int:
        return self._source.start_offset(partition)

    def end_offset(self, partition: Partition) -> int:
        return self._source.end_offset(partition)

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self._source.seek(partition, offset, source_state)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        self._failing = None  # An error of a poll is the source's.
        return self._source.poll(max_records, timeout_ms, resting)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        positions = {each.partition: each.position for each in outputs}
        self._failing = _SOURCE
        self._source.check_owned(positions.keys())
        try:
            self._send(outputs)
            self._failing = _SOURCE
            self._source.acknowledge(positions)
            self._failing = None
        except PublishRefused:
            # Another worker may have owned them meanwhile, so they are taken over anew.
            self._lost |= positions.keys()
            raise

    def close(self) -> None:
        """Close all participants. One that fails to close ends with the process."""
        for close in (self._source.close, *(route.sink.close for route in self._routes)):
            with suppress(ResequencerError):
                close()

    def _send(self, outputs: Sequence[PartitionOutput]) -> None:
        for at, route in enumerate(self._routes):
            self._failing = route.name
            try:
                route.sink.publish([_part(each, route.channels) for each in outputs])
            except NothingLeft as error:
                if at == 0:
                    raise
                # The sinks before it have the records, so the next call must bring the same.
                raise TransportUnavailable(f"{route.name}: {error}") from error


def _words(**abilities: bool) -> tuple[str, ...]:
    return tuple(name for name, is_given in abilities.items() if is_given)


def _part(output: PartitionOutput, channels: Collection[Channel]) -> PartitionOutput:
    return replace(output, records=tuple(each for each in output.records if each.channel in channels))


def routes_of(sinks: Mapping[str, Sink]) -> list[Route]:
    """Return the routes to sinks by name. The first takes all channels, the others the notifications."""
    channels = [frozenset(Channel), *[frozenset({Channel.NOTIFICATIONS})] * (len(sinks) - 1)]
    return [Route(name, sink, taken) for (name, sink), taken in zip(sinks.items(), channels, strict=True)]
