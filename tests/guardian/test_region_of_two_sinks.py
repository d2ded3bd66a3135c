"""A region of a source and two sinks that remember, one of which fails."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import Service

from connectors.files.transport import FileTransport
from connectors.port import Channel, PartitionOutput, Position, PublishRefused, TransportRefused
from connectors.region.port import SinkCapabilities, SourceCapabilities
from connectors.region.transport import RegionTransport, routes_of
from domain.record import Partition
from guardian.region_cycle import RegionCycle


class FileRecords:
    """The reading half of a transport on files, as a source that remembers nothing."""

    capabilities = SourceCapabilities(can_replay=True, remembers=False)

    def __init__(self, inner: FileTransport) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def position(self, _: Partition) -> None:
        return None

    def check_owned(self, partitions: Collection[Partition]) -> None:
        assert set(partitions) <= set(self._inner.assignment())

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        assert positions


class RememberingSink:
    """Keeps what it was sent. Its next publications raise these errors, after the records were kept if `keeps_first`."""

    capabilities = SinkCapabilities(is_transactional=True, remembers=True)
    notes: Sequence[str] = ()

    def __init__(self) -> None:
        self.numbers: dict[Partition, list[int]] = {}
        self.positions: dict[Partition, Position] = {}
        self.errors: list[Exception] = []
        self.keeps_first = False

    def position(self, partition: Partition) -> Position | None:
        found = self.positions.get(partition)
        highest = max(self.numbers.get(partition, [0]), default=0)
        return None if found is None else Position(found.offset, found.metadata, highest=highest)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        if self.errors and not self.keeps_first:
            raise self.errors.pop(0)
        for each in outputs:
            kept = self.numbers.setdefault(each.partition, [])
            sent = [one.number for one in each.records if one.channel is Channel.NOTIFICATIONS]
            kept += [number for number in sent if number > max(kept, default=0)]
            self.positions[each.partition] = each.position
        if self.errors:
            raise self.errors.pop(0)

    def close(self) -> None: ...


class TwoSinks:
    def __init__(self, directory: Path) -> None:
        self.first, self.second = RememberingSink(), RememberingSink()
        self.service = Service(directory)
        self.service.around_transport = lambda inner: RegionTransport(
            FileRecords(inner),  # type: ignore[arg-type]
            routes_of({"kafka": self.first, "branch": self.second}),
        )
        self.service.put()
        self.service.start().run()
        self.service.retry.waits_for_people = True
        service = self.service
        self.cycle = RegionCycle(service.cycle, service.servers, service.retry, service.clock, service.clock.advance)
        self.region = self.cycle.region

    def run(self) -> None:
        for _ in range(8):
            self.cycle.run_once()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoSinks]:
    made = TwoSinks(tmp_path)
    yield made
    made.service.kill()


@pytest.mark.parametrize("keeps_first", [False, True])
@pytest.mark.parametrize("name", ["kafka", "branch"])
def test_a_reset_after_one_sink_has_published_and_another_has_failed_doubles_nothing(
    two: TwoSinks, name: str, *, keeps_first: bool
) -> None:
    failing = two.first if name == "kafka" else two.second
    two.service.tell("u", 1, 2)
    two.run()
    failing.errors, failing.keeps_first = [TransportRefused(f"queue {name}", "it is not there. Make it")] * 2, keeps_first
    two.service.tell("u", 3, 4)
    two.run()
    for number in (5, 6):
        two.service.tell("u", number)
        two.run()
    assert [list(sink.numbers.values()) for sink in (two.first, two.second)] == [[[1, 2, 3, 4, 5, 6]]] * 2
    assert two.region.resets >= 1
    assert two.region.failure is not None
    assert (two.region.failure.participant, two.region.attempts) == (name, 0)


def test_a_sink_that_refuses_for_ever_fails_the_region_and_the_others_get_nothing_twice(two: TwoSinks) -> None:
    two.second.errors = [TransportRefused("queue branch", "it is not there. Make it")] * 6
    two.service.tell("u", 1)
    for _ in range(4):
        two.run()
    assert two.region.has_failed
    assert list(two.first.numbers.values()) == [[1]]
    participants = {each.name: each for each in two.service.servers.transport.standing().participants}
    assert set(participants) == {"source", "kafka", "branch"}
    assert participants["kafka"].abilities == ("one transaction", "remembers")
    assert participants["source"].abilities == ("replays",)


def test_a_sink_that_refuses_a_publication_once_is_asked_again_without_a_reset(two: TwoSinks) -> None:
    two.second.errors = [PublishRefused("another one has it")]
    two.service.tell("u", 1)
    two.run()
    assert list(two.second.numbers.values()) == [[1]]
    assert two.region.resets == 0
