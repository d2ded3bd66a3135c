"""Completions on a real topic, as the console reads them."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from harness.waiting import wait_until
from kafka import TopicPartition
from msgspec.structs import replace

from notification_service.aggregation.completions import Completed, Place
from notification_service.aggregation.kafka_view import TopicCompletions
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    with closing(KafkaStage(kafka)) as stage:
        yield stage


@pytest.fixture
def log(stage: KafkaStage) -> Iterator[TopicCompletions]:
    settings = stage.settings()
    completed = replace(settings, topics=replace(settings.topics, notifications=settings.topics.input))
    with closing(TopicCompletions(completed)) as log:
        yield log


def read_until(log: TopicCompletions, at: Place, count: int) -> tuple[list[Completed], Place]:
    found: list[Completed] = []

    def is_read() -> bool:
        nonlocal at
        records, at = log.read(at, 2)
        found.extend(records)
        return len(found) >= count

    wait_until(is_read, f"{count} completions")
    return found, at


def test_reading_continues_from_any_place_and_an_aborted_completion_is_none(stage: KafkaStage, log: TopicCompletions) -> None:
    begins = log.begins()
    stage.send(b"1", b"2", headers=(("n", b"1"),))
    stage.send_in_transaction(b"never", abort=True)
    stage.send(b"3")
    stage.send(b"other", partition=1)
    found, at = read_until(log, begins, 4)
    assert sorted((each.partition, each.offset, each.next_offset) for each in found) == [
        (0, 0, 1),
        (0, 1, 2),
        (0, 4, 5),
        (1, 0, 1),
    ]
    assert at == log.ends() == {0: 5, 1: 1}
    assert next(each.headers for each in found if each.offset == 1) == (("n", b"1"),)
    assert [each.offset for each in read_until(log, {0: 1}, 2)[0]] == [1, 4], "of the partitions that are named"


def test_what_is_gone_is_read_from_what_is_there(stage: KafkaStage, log: TopicCompletions) -> None:
    stage.send(*[b"%d" % number for number in range(6)])
    with closing(stage.kafka.admin()) as admin:
        admin.delete_records({TopicPartition(stage.topics.input, 0): 4})
    assert [each.offset for each in read_until(log, {0: 1}, 2)[0]] == [4, 5]
    assert log.read({0: 9}, 2) == ([], {0: 6}), "the brokers have lost what was read"
