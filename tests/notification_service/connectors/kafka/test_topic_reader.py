"""The topic reader: it reads up to an end, and continues from there; or it follows positions."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from harness.waiting import wait_until
from kafka import TopicPartition
from msgspec.structs import replace

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka import topic_reader
from notification_service.connectors.kafka.topic_reader import CommittedReader, find_record, find_written
from resequencer.record import Origin
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(kafka, partitions=1)
    yield stage
    stage.close()


def test_what_lies_behind_an_end_is_read_with_the_next_one(stage: KafkaStage) -> None:
    """A poll may bring records beyond the end: a broker that was unavailable may answer with an older end."""
    stage.send(*[b"%d" % number for number in range(10)])
    (name,) = [TopicPartition(*each) for each in stage.partitions]
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        pieces = [[each.value for _, records in reader.read({name: end}) for each in records] for end in (3, 3, 7, 10)]
    assert pieces == [[b"0", b"1", b"2"], [], [b"3", b"4", b"5", b"6"], [b"7", b"8", b"9"]]


def test_brokers_that_send_nothing_are_not_waited_for_without_end(stage: KafkaStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.send(b"a")
    (name,) = [TopicPartition(*each) for each in stage.partitions]
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        reading = reader.read({name: 2})
        assert [each.value for each in next(reading)[1]] == [b"a"]
        monkeypatch.setattr(topic_reader, "_SILENT_SECONDS", 1)
        with pytest.raises(TransportUnavailable, match="have sent nothing for 1 s"):
            next(reading)


def test_one_record_is_read_by_its_position(stage: KafkaStage) -> None:
    stage.send(b"a", b"b", headers=[("h", b"1")])
    stage.send_in_transaction(b"gone", abort=True)
    stage.send(b"c")
    (partition,) = stage.partitions
    origins = [Origin(partition, offset) for offset in (0, 1, 2, 4, 99)]
    found = [find_record(stage.settings(), each) for each in origins]
    assert [each and each.value for each in found] == [b"a", b"b", None, b"c", None]
    assert found[1] is not None
    assert (found[1].key, found[1].headers, found[1].origin) == (b"k", (("h", b"1"),), origins[1])
    written = find_written(stage.settings(), partition.topic, origins, 60)
    assert list(written) == [origins[0], origins[1], origins[3]]
    assert written[origins[0]] == found[0].written_at


def test_a_reader_of_other_topics_does_not_need_that_of_the_facts(stage: KafkaStage) -> None:
    settings = replace(stage.settings(), topics=replace(stage.topics, facts="mistyped"))
    with closing(CommittedReader(settings, [stage.topics.input])) as reader:
        assert len(reader.ends()) == 1
    assert settings.without_facts().topics == stage.topics


def follow_until(reader: CommittedReader, offsets: Mapping[int, int], count: int) -> tuple[list[bytes], Mapping[int, int]]:
    """Poll until so many records have come; return their values, and the positions behind them."""
    found: list[bytes] = []

    def is_read() -> bool:
        nonlocal offsets
        reader.follow(offsets)
        found.extend(each.value for records in reader.poll(2).values() for each in records)
        offsets = reader.positions()
        return len(found) >= count

    wait_until(is_read, f"{count} records")
    return found, offsets


def test_a_follower_reads_the_partitions_that_it_names_across_transactions(kafka: KafkaServer) -> None:
    with (
        closing(KafkaStage(kafka, partitions=2)) as stage,
        closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader,
    ):
        stage.send(b"other", partition=1)
        stage.send(b"a", b"b")
        stage.send_in_transaction(b"never", abort=True)
        stage.send(b"c")
        assert reader.follow({0: 0}) == {0: 0}
        found, positions = follow_until(reader, {0: 0}, 3)
        assert (found, positions) == ([b"a", b"b", b"c"], {0: 5})
        stage.send(b"d")
        assert follow_until(reader, positions, 1) == ([b"d"], {0: 6})
        found, positions = follow_until(reader, {0: 5, 1: 0}, 2)
        assert (sorted(found), positions) == ([b"d", b"other"], {0: 6, 1: 1})


def test_a_follower_continues_at_what_is_there_of_a_log(stage: KafkaStage) -> None:
    """Retention has deleted what came before, or the brokers have lost what came behind."""
    stage.send(*[b"%d" % number for number in range(6)])
    (name,) = [TopicPartition(*each) for each in stage.partitions]
    with closing(stage.kafka.admin()) as admin:
        admin.delete_records({name: 4})
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        assert reader.follow({0: 1}) == {0: 4}
        assert follow_until(reader, {0: 1}, 2) == ([b"4", b"5"], {0: 6})
        assert reader.follow({0: 9}) == {0: 6}
        stage.send(b"6")
        assert follow_until(reader, {0: 9}, 1) == ([b"6"], {0: 7})


def test_a_follower_of_no_partition_reads_none(stage: KafkaStage) -> None:
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        assert reader.follow({}) == reader.positions() == {}
        assert reader._reader.assignment() == set()


def test_a_follower_that_continues_where_it_ended_asks_the_brokers_nothing(
    stage: KafkaStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.send(b"a", b"b")
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        _, positions = follow_until(reader, {0: 0}, 2)
        monkeypatch.setattr(reader, "begins", lambda: pytest.fail("asked"))
        assert reader.follow(positions) == positions
