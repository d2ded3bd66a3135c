"""What a transport makes of its participants when one of them fails."""

import pytest

from connectors.port import (
    Channel,
    NothingLeft,
    OutputRecord,
    PartitionOutput,
    Polled,
    Position,
    TransportRefused,
    TransportStatus,
    TransportUnavailable,
)
from connectors.region.port import SinkCapabilities, SourceCapabilities
from connectors.region.transport import RegionTransport, routes_of
from domain.errors import ResequencerError
from domain.record import Partition

P0 = Partition("EVENTS", 0)


class FakeSource:
    """A source whose next call raises `error`."""

    capabilities = SourceCapabilities(can_replay=True, remembers=False)

    def __init__(self) -> None:
        self.error: ResequencerError | None = None
        self.acknowledged: list[Position] = []

    def _raise(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def standing(self) -> TransportStatus:
        return TransportStatus()

    def assignment(self) -> list[Partition]:
        return [P0]

    def position(self, partition: Partition) -> Position | None:
        raise AssertionError(f"it remembers no position of {partition}")

    def source(self, partition: Partition) -> str:
        return partition.topic

    def start_offset(self, partition: Partition) -> int:
        return partition.number

    def end_offset(self, partition: Partition) -> int:
        return partition.number + 10

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        del partition, offset, source_state

    def poll(self, max_records: int, timeout_ms: int, resting: object = ()) -> Polled:
        del max_records, timeout_ms, resting
        self._raise()
        return Polled((), {}, {}, {})

    def check_owned(self, partitions: object) -> None:
        del partitions

    def acknowledge(self, positions: dict[Partition, Position]) -> None:
        self._raise()
        self.acknowledged += positions.values()

    def close(self) -> None: ...


class FakeSink:
    """A sink that keeps the numbers that left, and whose next publication raises `error`."""

    capabilities = SinkCapabilities(is_transactional=True, remembers=True)
    notes = ()

    def __init__(self) -> None:
        self.error: ResequencerError | None = None
        self.left: list[int] = []
        self.kept: Position | None = None

    def position(self, partition: Partition) -> Position | None:
        del partition
        return self.kept

    def publish(self, outputs: list[PartitionOutput]) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        (output,) = outputs
        self.left += [each.number for each in output.records if each.number not in self.left]
        self.kept = Position(output.position.offset, output.position.metadata, highest=max(self.left))

    def close(self) -> None: ...


def output(number: int) -> PartitionOutput:
    record = OutputRecord(number, Channel.NOTIFICATIONS, b"u", (), b"v")
    return PartitionOutput(P0, (record,), Position(number, f"commit {number}"))


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def sinks() -> dict[str, FakeSink]:
    return {"jms": FakeSink(), "kafka": FakeSink()}


@pytest.fixture
def transport(source: FakeSource, sinks: dict[str, FakeSink]) -> RegionTransport:
    return RegionTransport(source, routes_of(sinks), "file")


def problems(transport: RegionTransport) -> dict[str, str | None]:
    return {each.name: each.problem for each in transport.standing().participants}


@pytest.mark.parametrize("error", [TransportUnavailable("away"), TransportRefused("topic T", "no right. Give it")])
def test_one_sink_has_published_and_another_failed(
    source: FakeSource, sinks: dict[str, FakeSink], transport: RegionTransport, error: ResequencerError
) -> None:
    transport.publish([output(1)])
    sinks["kafka"].error = error
    with pytest.raises(type(error)):
        transport.publish([output(2)])
    assert (sinks["jms"].left, sinks["kafka"].left, len(source.acknowledged)) == ([1, 2], [1], 1)
    found = transport.position(P0)
    assert found is not None
    assert (found.offset, found.highest) == (1, 2), "the region is where the last sink is"
    transport.publish([output(2)])
    assert (sinks["jms"].left, sinks["kafka"].left, len(source.acknowledged)) == ([1, 2], [1, 2], 2)


def test_nothing_left_of_a_second_sink_is_not_that_nothing_left(sinks: dict[str, FakeSink], transport: RegionTransport) -> None:
    sinks["kafka"].error = NothingLeft("it was cut off")
    with pytest.raises(TransportUnavailable) as raised:
        transport.publish([output(1)])
    assert not isinstance(raised.value, NothingLeft)


def test_the_participant_whose_last_call_failed_is_named_until_it_answers(
    source: FakeSource, sinks: dict[str, FakeSink], transport: RegionTransport
) -> None:
    assert problems(transport) == {"source file": None, "sink jms": None, "sink kafka": None}
    sinks["kafka"].error = TransportUnavailable("away")
    with pytest.raises(TransportUnavailable):
        transport.publish([output(1)])
    assert problems(transport) == {"source file": None, "sink jms": None, "sink kafka": "away"}
    source.error = TransportRefused("file", "it is cut off. Restore it")
    with pytest.raises(TransportRefused):
        transport.poll(1, 0)
    assert problems(transport)["source file"] == "file: it is cut off. Restore it"
    transport.poll(1, 0)
    transport.publish([output(1)])
    assert set(problems(transport).values()) == {None}


def test_errors_of_the_old_participants_are_forgotten_after_a_reset(
    sinks: dict[str, FakeSink], transport: RegionTransport
) -> None:
    sinks["jms"].error = TransportUnavailable("the old producer")
    with pytest.raises(TransportUnavailable):
        transport.publish([output(1)])
    transport.position(P0)
    assert problems(transport)["sink jms"] is None


def test_capabilities_are_told_by_role(transport: RegionTransport) -> None:
    told = [(each.role, each.can_replay, each.is_transactional, each.remembers) for each in transport.standing().participants]
    assert told == [("source", True, None, False), ("sink", None, True, True), ("sink", None, True, True)]
