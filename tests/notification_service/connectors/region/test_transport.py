"""The transport of a region: one source and several sinks, in order, and what a failure in between leaves behind."""

from collections.abc import Collection, Mapping, Sequence

import pytest
from msgspec.structs import replace

from guardian.ports import (
    Channel,
    NotPublished,
    OutputRecord,
    PartitionOutput,
    Polled,
    Position,
    PublishRefused,
    TransportRefused,
    TransportStatus,
    TransportUnavailable,
)
from notification_service.connectors.region_port import SinkCapabilities, SourceCapabilities
from notification_service.connectors.region_transport import RegionTransport, routes_of
from resequencer.record import Partition

P0, P1 = Partition("EVENTS", 0), Partition("EVENTS", 1)


class FakeSource:
    """`calls` names what happens in the region, in order. `fails` is raised by the next call of that name."""

    def __init__(self, calls: list[str], capabilities: SourceCapabilities = SourceCapabilities(can_replay=True, remembers=False)):  # noqa: B008 - frozen.
        self.capabilities = capabilities
        self.calls = calls
        self.fails: dict[str, Exception] = {}
        self.positions: dict[Partition, Position] = {}
        self.sought: list[tuple[Partition, int, str]] = []

    def standing(self) -> TransportStatus:
        return TransportStatus(notes=("the source says",))

    def assignment(self) -> Collection[Partition]:
        return [P0, P1]

    def position(self, partition: Partition) -> Position | None:
        self.calls.append("position of the source")
        return self.positions.get(partition)

    def source(self, partition: Partition) -> str:
        return f"log of {partition}"

    def start_offset(self, partition: Partition) -> int:
        return partition.number

    def end_offset(self, partition: Partition) -> int:
        return 10 + partition.number

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self.sought.append((partition, offset, source_state))

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        self._happens("poll")
        return Polled((), {}, {P0: max_records}, {P0: timeout_ms})

    def wake(self) -> None:
        self._happens("wake the source")

    def check_owned(self, partitions: Collection[Partition]) -> None:
        self._happens("check")

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        self._happens("acknowledge")
        self.positions |= positions

    def close(self) -> None:
        self._happens("close the source")

    def _happens(self, what: str) -> None:
        self.calls.append(what)
        if what in self.fails:
            raise self.fails.pop(what)


class FakeSink:
    """A sink that keeps what it is given. `fails` is raised once, before anything leaves."""

    notes: Sequence[str] = ()

    def __init__(self, calls: list[str], name: str, *, remembers: bool = True) -> None:
        self.capabilities = SinkCapabilities(is_transactional=remembers, remembers=remembers)
        self.calls = calls
        self.name = name
        self.fails: Exception | None = None
        self.positions: dict[Partition, Position] = {}
        self.got: list[int] = []

    def position(self, partition: Partition) -> Position | None:
        self.calls.append(f"position of {self.name}")
        return self.positions.get(partition)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        self.calls.append(self.name)
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        self.got += [record.number for each in outputs for record in each.records]
        if self.capabilities.remembers:
            self.positions |= {each.partition: each.position for each in outputs}

    def close(self) -> None:
        self.calls.append(f"close {self.name}")


class Stage:
    def __init__(self, *names: str, source: SourceCapabilities = SourceCapabilities(can_replay=True, remembers=False)) -> None:  # noqa: B008 - frozen.
        self.calls: list[str] = []
        self.source = FakeSource(self.calls, source)
        self.sinks = {name: FakeSink(self.calls, name, remembers=name != "mqtt") for name in names}
        self.transport = RegionTransport(self.source, routes_of(self.sinks), "events")

    def problems(self) -> dict[str, str | None]:
        return {each.name: each.problem for each in self.transport.standing().participants}


REMEMBERING = SourceCapabilities(can_replay=True, remembers=True)


def output(*numbers: int, partition: Partition = P0, channel: Channel = Channel.NOTIFICATIONS) -> PartitionOutput:
    records = tuple(OutputRecord(number, channel, None, (), b"") for number in numbers)
    return PartitionOutput(partition, records, position(max(numbers, default=0)))


def position(highest: int, offset: int = 0, metadata: str | None = None) -> Position:
    return Position(offset or highest, f"commit {highest}" if metadata is None else metadata, highest=highest)


def test_a_publication_goes_to_forgetting_sinks_first_and_is_acknowledged_last() -> None:
    stage = Stage("jms", "mqtt", "kafka")
    stage.transport.publish([output(1)])
    assert stage.calls == ["check", "mqtt", "jms", "kafka", "acknowledge"]


def test_the_first_sink_takes_everything_and_the_others_notifications() -> None:
    stage = Stage("jms", "kafka")
    stage.transport.publish([output(1)])
    stage.transport.publish([output(2, channel=Channel.DEAD_LETTERS)])
    stage.transport.publish([output(3, channel=Channel.FACTS)])
    assert (stage.sinks["jms"].got, stage.sinks["kafka"].got) == ([1, 2, 3], [1])


def test_a_sink_without_a_record_of_its_own_gets_the_position_all_the_same() -> None:
    stage = Stage("jms", "kafka")
    stage.transport.publish([output(2, channel=Channel.DEAD_LETTERS)])
    assert stage.sinks["kafka"].positions[P0] == position(2)


def test_nothing_is_sent_for_a_partition_that_is_not_owned() -> None:
    stage = Stage("jms")
    stage.source.fails["check"] = PublishRefused("not mine")
    with pytest.raises(PublishRefused):
        stage.transport.publish([output(1)])
    assert stage.sinks["jms"].got == []


# The position


def test_nothing_was_published_if_no_participant_knows_a_position() -> None:
    assert Stage("jms", "kafka").transport.position(P0) is None


def test_a_position_asks_every_sink_because_that_fences() -> None:
    stage = Stage("jms", "mqtt", "kafka", source=REMEMBERING)
    stage.transport.position(P0)
    assert stage.calls == ["position of mqtt", "position of jms", "position of kafka", "position of the source"]


def test_the_position_is_that_of_the_sink_that_is_behind_and_highest_that_of_the_sink_that_is_ahead() -> None:
    stage = Stage("jms", "kafka")
    stage.sinks["jms"].positions[P0], stage.sinks["kafka"].positions[P0] = position(7), position(5)
    assert stage.transport.position(P0) == Position(5, "commit 5", highest=7)


def test_the_sink_that_is_behind_counts_though_the_configuration_names_it_first_now() -> None:
    stage = Stage("kafka", "jms")
    stage.sinks["jms"].positions[P0], stage.sinks["kafka"].positions[P0] = position(7), position(5)
    assert stage.transport.position(P0) == Position(5, "commit 5", highest=7)


def test_of_sinks_with_the_same_number_one_counts_that_knows_the_commit() -> None:
    stage = Stage("file", "jms")
    stage.sinks["file"].positions[P0], stage.sinks["jms"].positions[P0] = position(5, 1, metadata=""), position(5)
    assert stage.transport.position(P0) == position(5)


def test_the_position_of_a_source_that_remembers_is_the_regions() -> None:
    stage = Stage("jms", source=REMEMBERING)
    stage.source.positions[P0], stage.sinks["jms"].positions[P0] = Position(3, "commit 3"), position(5)
    assert stage.transport.position(P0) == Position(3, "commit 3", highest=5)


def test_without_its_own_position_the_source_goes_on_where_the_sinks_are() -> None:
    stage = Stage("jms", source=REMEMBERING)
    stage.sinks["jms"].positions[P0] = position(5)
    assert stage.transport.position(P0) == position(5)


@pytest.mark.parametrize("source", [REMEMBERING, SourceCapabilities(can_replay=True, remembers=False)], ids=["kafka", "files"])
def test_a_sink_without_a_marker_is_told_because_what_it_has_is_not_known(source: SourceCapabilities) -> None:
    stage = Stage("jms", "kafka", source=source)
    stage.sinks["jms"].positions[P0] = stage.source.positions[P0] = position(5)
    found = stage.transport.position(P0)
    assert found is not None
    assert (found.metadata, found.highest, found.is_whole) == ("commit 5", 5, False)


def test_a_forgetting_sink_is_missed_by_no_position() -> None:
    stage = Stage("mqtt", "kafka")
    stage.sinks["kafka"].positions[P0] = position(5)
    assert stage.transport.position(P0) == position(5)


def test_a_sink_that_has_some_records_beyond_its_position_lacks_the_others() -> None:
    """Notification 7 is written, and dead letter 6 is not. The other sink does not have what is beyond in this one."""
    stage = Stage("kafka", "file")
    stage.sinks["file"].positions[P0] = Position(5, "commit 5", frozenset({7}), 5)
    stage.sinks["kafka"].positions[P0] = position(6)
    assert stage.transport.position(P0) == Position(5, "commit 5", highest=7)


# Failures


@pytest.mark.parametrize("who", ["jms", "kafka"])
def test_nothing_left_of_any_sink_is_passed_on_so_that_the_next_portion_is_smaller(who: str) -> None:
    stage = Stage("jms", "kafka")
    stage.sinks[who].fails = NotPublished("too large")
    with pytest.raises(NotPublished):
        stage.transport.publish([output(1, 2)])
    stage.transport.publish([output(1)])
    assert stage.sinks["kafka"].got == [1]


def test_nothing_left_is_an_unknown_outcome_while_another_sink_must_get_the_same_once_more() -> None:
    stage = Stage("jms", "kafka")
    stage.sinks["kafka"].fails = TransportUnavailable("no answer")
    with pytest.raises(TransportUnavailable):
        stage.transport.publish([output(1)])
    stage.sinks["jms"].fails = NotPublished("no connection")
    with pytest.raises(TransportUnavailable, match="jms: no connection") as caught:
        stage.transport.publish([output(1)])
    assert not isinstance(caught.value, NotPublished)


def test_nothing_left_is_passed_on_for_partitions_of_which_nothing_is_undecided() -> None:
    stage = Stage("jms", "kafka")
    stage.sinks["kafka"].fails = TransportUnavailable("no answer")
    with pytest.raises(TransportUnavailable):
        stage.transport.publish([output(1)])
    stage.sinks["jms"].fails = NotPublished("no connection")
    with pytest.raises(NotPublished):
        stage.transport.publish([output(1, partition=P1)])


@pytest.mark.parametrize("ends", ["publish", "position", "nothing left"])
def test_nothing_left_is_passed_on_again_once_every_outcome_is_known(ends: str) -> None:
    stage = Stage("jms", "kafka")
    stage.sinks["kafka"].fails = TransportUnavailable("no answer")
    with pytest.raises(TransportUnavailable):
        stage.transport.publish([output(1)])
    if ends == "position":
        stage.transport.position(P0)
    elif ends == "publish":
        stage.transport.publish([output(1)])
    else:
        stage.sinks["kafka"].fails = NotPublished("too large")
        with pytest.raises(NotPublished):
            stage.transport.publish([output(1)])
    stage.sinks["jms"].fails = NotPublished("no connection")
    with pytest.raises(NotPublished):
        stage.transport.publish([output(2)])


@pytest.mark.parametrize("error", [TransportUnavailable("away"), TransportRefused("topic T", "no right. Give it")])
def test_one_sink_has_published_and_another_failed(error: TransportUnavailable | TransportRefused) -> None:
    stage = Stage("jms", "kafka")
    stage.transport.publish([output(1)])
    stage.sinks["kafka"].fails = error
    with pytest.raises(type(error)):
        stage.transport.publish([output(2)])
    assert (stage.sinks["jms"].got, stage.sinks["kafka"].got) == ([1, 2], [1])
    assert stage.transport.position(P0) == Position(1, "commit 1", highest=2)
    stage.transport.publish([output(2)])
    assert stage.sinks["kafka"].got == [1, 2]


def test_nothing_is_acknowledged_while_a_sink_lacks_it() -> None:
    stage = Stage("jms", "kafka")
    stage.sinks["kafka"].fails = TransportUnavailable("no answer")
    with pytest.raises(TransportUnavailable):
        stage.transport.publish([output(1)])
    assert stage.source.positions == {}


@pytest.mark.parametrize("who", ["jms", "kafka", "acknowledge"])
def test_partitions_of_a_refused_publication_are_left_out_once(who: str) -> None:
    stage = Stage("jms", "kafka")
    stage.transport.seek(P0, 0)
    if who == "acknowledge":
        stage.source.fails[who] = PublishRefused("another worker's")
    else:
        stage.sinks[who].fails = PublishRefused("another worker's")
    with pytest.raises(PublishRefused):
        stage.transport.publish([output(1)])
    assert stage.transport.assignment() == [P1]
    assert stage.transport.assignment() == [P0, P1]


def test_a_takeover_whose_publication_is_refused_is_put_off_and_not_left_out() -> None:
    """A partition that is left out is forgotten, and with it how long the next try waits."""
    stage = Stage("jms")
    stage.transport.position(P0)
    stage.sinks["jms"].fails = PublishRefused("another worker's")
    with pytest.raises(PublishRefused):
        stage.transport.publish([output()])
    assert stage.transport.assignment() == [P0, P1]


QUEUE = SourceCapabilities(can_replay=False, remembers=False, window=500)


def test_a_queue_is_asked_only_for_partitions_after_their_seek() -> None:
    """What it took before may not be stored: nothing of it may be acknowledged, not even by the position of a heal."""
    stage = Stage("jms", source=QUEUE)
    stage.transport.publish([output(1)])
    assert stage.calls == ["jms"]
    stage.transport.seek(P0, 7)
    stage.transport.publish([output(2), output(1, partition=P1)])
    assert stage.source.positions == {P0: position(2)}
    stage.transport.position(P0)
    stage.transport.publish([output(3)])
    assert stage.source.positions == {P0: position(2)}


def test_a_queue_acknowledges_with_the_last_portion_and_a_log_with_each() -> None:
    """While a message is left, the broker shows to the next owner that there is work."""
    for source, expected in ((QUEUE, {}), (REMEMBERING, {P0: position(1)})):
        stage = Stage("jms", source=source)
        stage.transport.seek(P0, 0)
        stage.transport.publish([replace(output(1), is_last=False)])
        assert stage.source.positions == expected
        stage.transport.publish([output(2)])
        assert stage.source.positions == {P0: position(2)}


# What operators see


def test_the_participant_whose_last_call_failed_is_named_until_it_answers() -> None:
    stage = Stage("jms", "kafka")
    assert stage.problems() == {"source events": None, "sink jms": None, "sink kafka": None}
    stage.sinks["kafka"].fails = TransportUnavailable("away")
    with pytest.raises(TransportUnavailable):
        stage.transport.publish([output(1)])
    assert stage.problems() == {"source events": None, "sink jms": None, "sink kafka": "away"}
    stage.source.fails["poll"] = TransportRefused("file", "it is cut off. Restore it")
    with pytest.raises(TransportRefused):
        stage.transport.poll(1, 0)
    assert stage.problems()["source events"] == "file: it is cut off. Restore it"
    stage.transport.poll(1, 0)
    stage.transport.publish([output(1)])
    assert set(stage.problems().values()) == {None}


def test_errors_of_an_old_producer_are_forgotten_once_the_partition_is_taken_over_anew() -> None:
    stage = Stage("jms", "kafka")
    stage.sinks["jms"].fails = TransportUnavailable("the old producer")
    with pytest.raises(TransportUnavailable):
        stage.transport.publish([output(1)])
    stage.transport.position(P0)
    assert stage.problems()["sink jms"] is None


def test_capabilities_are_told_by_role() -> None:
    participants = [
        (each.role, each.can_replay, each.is_transactional, each.remembers)
        for each in Stage("jms", "kafka").transport.standing().participants
    ]
    assert participants == [("source", True, None, False), ("sink", None, True, True), ("sink", None, True, True)]


# The rest


def test_a_region_remembers_if_one_participant_does() -> None:
    assert Stage("mqtt").transport.standing().remembers is False
    assert Stage("mqtt", "jms").transport.standing().remembers is True
    assert Stage("mqtt", source=REMEMBERING).transport.standing().remembers is True


def test_the_window_of_a_source_without_replay_is_told() -> None:
    assert Stage("jms", source=QUEUE).transport.standing().window == 500
    assert Stage("jms", source=REMEMBERING).transport.standing().window == 0


def test_notes_of_all_participants_are_told() -> None:
    stage = Stage("jms")
    stage.sinks["jms"].notes = ("the sink says",)
    assert stage.transport.standing().notes == ("the source says", "the sink says")


def test_reading_is_the_sources() -> None:
    stage = Stage("jms")
    assert (stage.transport.source(P1), stage.transport.start_offset(P1), stage.transport.end_offset(P1)) == (
        "log of EVENTS-1", 1, 11,
    )  # fmt: skip
    stage.transport.seek(P0, 4, "state")
    assert stage.source.sought == [(P0, 4, "state")]
    assert stage.transport.poll(3, 7).log_ends == {P0: 7}
    stage.transport.wake()
    assert stage.calls[-1] == "wake the source"


def test_everything_is_closed_though_one_part_fails() -> None:
    stage = Stage("jms", "kafka")
    stage.source.fails["close the source"] = TransportUnavailable("no answer")
    stage.transport.close()
    assert stage.calls == ["close the source", "close jms", "close kafka"]
