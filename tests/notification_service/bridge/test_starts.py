"""The contract of replayable starts, on real files and on a real broker: what was appended is read by the source, in order."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until
from msgspec.structs import replace

from guardian.headers import as_cut
from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.bridge.file_start import FileStart
from notification_service.bridge.runner import Bridge, Start, TooLarge
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.source import FileSource
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.line_format import Line, partition_of
from resequencer.record import Cut, Record
from servers.kafka import KafkaServer
from tests.notification_service.bridge.test_runner import Broker

PARTITIONS = 3


class Stage:
    """`open` opens a start, `read` returns so many records, by partition."""

    def __init__(self, open_start: Callable[[], Start], read: Callable[[int], list[Record]]) -> None:
        self.open, self.read = open_start, read


@pytest.fixture
def on_files(tmp_path: Path) -> Stage:
    directory = tmp_path / "in"
    directory.mkdir()
    for number in range(PARTITIONS):
        (directory / f"partition-{number}.jsonl").touch()
    return Stage(lambda: FileStart(directory, SystemFiles()), lambda count: read_files(directory, count))


@pytest.fixture
def on_kafka(kafka: KafkaServer, fresh_name: Callable[[str], str]) -> Stage:
    topic = fresh_name("start")
    kafka.create_topics(topic, partitions=PARTITIONS)
    return Stage(lambda: open_on_kafka(kafka, topic), lambda count: read_topic(kafka, topic, count))


@pytest.fixture(params=["files", pytest.param("kafka", marks=pytest.mark.slow)])
def stage(request: pytest.FixtureRequest) -> Stage:
    found: Stage = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.fixture
def start(stage: Stage) -> Iterator[Start]:
    opened = stage.open()
    yield opened
    opened.close()


def test_lines_come_back_as_they_were_appended(stage: Stage, start: Start) -> None:
    lines = [
        Line(b'{"n":1}', b"unit", (("schema-version", b"2"), ("twice", b"1"), ("twice", b"2"))),
        Line(b"no envelope", None),
        Line(b"\xff\x00\n", b"\xfe", (("bytes", b"\xff"),)),
        Line(b"", b"empty"),
    ]
    start.append(lines)
    found = {(each.key, each.value, each.headers) for each in stage.read(len(lines))}
    assert found == {(each.key, each.value, each.headers) for each in lines}


def test_all_lines_of_a_key_are_in_one_partition_in_their_order(stage: Stage, start: Start) -> None:
    sent = [Line(b"%d" % number, b"unit-%d" % (number % 20)) for number in range(400)]
    for at in range(0, 400, 37):
        start.append(sent[at : at + 37])
    found = stage.read(400)
    of_key: dict[bytes | None, list[Record]] = {}
    for each in found:
        of_key.setdefault(each.key, []).append(each)
    assert len({each.origin.partition for each in found}) == PARTITIONS
    for key, records in of_key.items():
        assert len({each.origin.partition for each in records}) == 1
        assert [each.value for each in records] == [each.value for each in sent if each.key == key]


def test_another_start_of_the_same_place_goes_on_behind_the_first(stage: Stage) -> None:
    for number in range(3):
        opened = stage.open()
        opened.append([Line(b"%d" % number, b"unit")])
        opened.close()
    assert [each.value for each in stage.read(3)] == [b"0", b"1", b"2"]


@pytest.mark.slow
def test_a_topic_that_takes_no_such_large_message_is_named_with_the_remedy(
    kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("small")
    kafka.create_topics(topic, partitions=1)
    start = open_on_kafka(kafka, topic)
    with pytest.raises(TooLarge, match=r"does not take a message of 300\d{4} bytes .* Raise its max.message.bytes"):
        start.append([Line(os.urandom(3_000_000), b"unit")])
    start.close()


@pytest.mark.slow
def test_what_a_topic_does_not_take_becomes_a_record_that_says_what_it_was(
    kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    """Behind the bridge the service makes a dead letter of it: a message that is too large does not stop those behind it."""
    topic, large = fresh_name("cut"), os.urandom(3_000_000)
    kafka.create_topics(topic, partitions=1)
    broker = Broker(large, b"behind it")
    bridge = Bridge(broker.open, lambda: open_on_kafka(kafka, topic), lambda _: None)

    def is_carried_over() -> bool:
        bridge.turn()
        return not broker.kept

    wait_until(is_carried_over, "both messages")
    bridge.close()
    found = [as_cut(each) for each in read_topic(kafka, topic, 2)]
    assert [(each.value, each.cut) for each in found if each.cut] == [
        (large[:65_536], Cut(len(large), hashlib.sha256(large).hexdigest()))
    ]
    assert {each.value for each in found} == {large[:65_536], b"behind it"}


@pytest.mark.slow
def test_a_topic_that_is_missing_is_named(kafka: KafkaServer, fresh_name: Callable[[str], str]) -> None:
    with pytest.raises((TransportRefused, TransportUnavailable), match="the brokers do not know it yet"):
        open_on_kafka(kafka, fresh_name("missing"))


@pytest.mark.slow
def test_a_producer_that_does_not_reach_the_brokers_is_unavailable_before_a_message_is_taken(
    kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    from notification_service.bridge.kafka_start import KafkaStart

    topic = fresh_name("unreached")
    kafka.create_topics(topic, partitions=1)
    settings = settings_on_kafka(kafka, topic)
    away = {**settings.producer, "bootstrap_servers": "127.0.0.1:1"}
    with pytest.raises(TransportUnavailable, match=topic):
        KafkaStart(replace(settings, producer=away))


@pytest.mark.slow
def test_brokers_that_are_away_are_unavailable_and_take_it_when_they_are_back(
    struck_server: Callable[..., Any], fresh_name: Callable[[str], str]
) -> None:
    server, topic = struck_server(KafkaServer), fresh_name("away")
    server.create_topics(topic, partitions=1)
    start = open_on_kafka(server, topic)
    start.append([Line(b"1", b"unit")])
    server.kill()
    with pytest.raises(TransportUnavailable):
        start.append([Line(b"2", b"unit")])
    start.close()
    server.start()

    def append() -> bool:
        try:
            open_on_kafka(server, topic).append([Line(b"2", b"unit")])
        except TransportUnavailable:
            return False
        return True

    wait_until(append, "the brokers are back")
    found = [each.value for each in read_topic(server, topic, 2)]
    assert found[:2] == [b"1", b"2"]


# Files


def test_an_empty_directory_gets_one_file(tmp_path: Path) -> None:
    FileStart(tmp_path / "in", SystemFiles()).close()
    assert [each.name for each in (tmp_path / "in").iterdir()] == ["partition-0.jsonl"]


def test_a_line_goes_to_the_file_that_the_simulator_chooses_too(tmp_path: Path, on_files: Stage) -> None:
    start = on_files.open()
    start.append([Line(b"{}", b"unit-%d" % number) for number in range(20)])
    start.close()
    for each in read_files(tmp_path / "in", 20):
        assert each.origin.partition.number == partition_of(each.key or b"", PARTITIONS)


def test_a_gap_among_the_files_is_refused(tmp_path: Path, on_files: Stage) -> None:
    (tmp_path / "in" / "partition-1.jsonl").unlink()
    with pytest.raises(TransportRefused, match=r"has no partition-1.jsonl, but partition-2.jsonl\. Put it back"):
        on_files.open()


def test_a_second_writer_is_kept_out(on_files: Stage) -> None:
    first = on_files.open()
    with pytest.raises(TransportUnavailable, match="another bridge writes it"):
        on_files.open()
    first.close()
    on_files.open().close()


def test_a_line_that_a_crash_left_half_written_is_cut_off(tmp_path: Path, on_files: Stage) -> None:
    whole = b'{"key":"unit","value":"1"}\n'
    for number in range(PARTITIONS):
        (tmp_path / "in" / f"partition-{number}.jsonl").write_bytes(whole + b'{"key":"unit","val' + b"x" * 100_000)
    start = on_files.open()
    start.append([Line(b"2", b"unit")])
    start.close()
    assert sorted(each.value for each in read_files(tmp_path / "in", 4)) == [b"1", b"1", b"1", b"2"]


@pytest.mark.parametrize("written", [0, 5, 40, 60])
def test_a_full_disk_leaves_whole_lines_and_takes_the_lines_again(tmp_path: Path, written: int) -> None:
    class Full(SystemFiles):
        is_full = True

        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            if not self.is_full:
                return super().write(descriptor, data)
            super().write(descriptor, bytes(data)[:written])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = Full()
    start = FileStart(tmp_path / "in", files)
    lines = [Line(b"%d" % number, b"unit") for number in range(3)]
    with pytest.raises(TransportUnavailable, match="ENOSPC"):
        start.append(lines)
    content = (tmp_path / "in" / "partition-0.jsonl").read_bytes()
    assert not content or content.endswith(b"\n")
    files.is_full = False
    start.append(lines)
    start.close()
    found = [each.value for each in read_files(tmp_path / "in", 3)]
    assert found[-3:] == [b"0", b"1", b"2"]


def test_lines_count_only_after_their_sync(tmp_path: Path) -> None:
    class Failing(SystemFiles):
        fails = False

        def fsync(self, descriptor: int) -> None:
            if self.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fsync(descriptor)

    files = Failing()
    start = FileStart(tmp_path / "in", files)
    files.fails = True
    with pytest.raises(TransportUnavailable, match="EIO"):
        start.append([Line(b"1", b"unit")])
    start.close()


def open_on_kafka(server: KafkaServer, topic: str) -> Start:
    from notification_service.bridge.kafka_start import KafkaStart

    return KafkaStart(settings_on_kafka(server, topic))


def settings_on_kafka(server: KafkaServer, topic: str) -> KafkaSettings:
    options, _, _ = read_options({"bootstrap.servers": server.bootstrap, "group.id": "g"}, {})
    return KafkaSettings.make(KafkaTopics(topic, topic, topic), options, "unused", 5 << 20)


def read_topic(server: KafkaServer, topic: str, count: int) -> list[Record]:
    from kafka import KafkaConsumer

    from notification_service.connectors.kafka.core.records import to_records
    from resequencer.record import Partition

    asked = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    consumer = KafkaConsumer(topic, bootstrap_servers=server.bootstrap, **asked)
    found: list[Record] = []
    try:
        while len(found) < count:
            for place, fetched in consumer.poll(1_000).items():
                found += to_records(Partition(topic, place.partition), fetched, 1 << 30)
    finally:
        consumer.close()
    return found


def read_files(directory: Path, count: int) -> list[Record]:
    source = FileSource(FileSettings("T", directory, directory.parent / "out"), lambda *_: None, SystemFiles())
    for each in source.assignment():
        source.seek(each, 0)
    found: list[Record] = []
    while len(found) < count:
        polled = source.poll(1_000, 0).records
        assert polled, f"{len(found)} of {count} lines"
        found += polled
    source.close()
    return found
