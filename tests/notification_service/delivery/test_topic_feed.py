"""Notifications from a real topic: each decided record once, in the order of its partition, from any position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from harness.receivers import receiver
from harness.waiting import wait_until

from notification_service.delivery.core.jobs import Item
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.intake import ACCEPTED

if TYPE_CHECKING:
    from notification_service.delivery.topic_feed import TopicFeed, TopicSpan
    from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow
Feeds = Callable[..., "TopicFeed"]


@pytest.fixture
def feed(topics: KafkaStage) -> Iterator[Feeds]:
    from notification_service.connectors.kafka.topic_reader import CommittedReader
    from notification_service.connectors.kafka.topics import Topic, Topics
    from notification_service.delivery.topic_feed import TopicFeed

    made: list[TopicFeed] = []
    settings, topic = topics.settings(), topics.topics.input

    def look() -> Topic:
        with closing(Topics(settings)) as found:
            return found.find(topic)

    def make(span: TopicSpan | None = None, *keys: str) -> TopicFeed:
        made.append(TopicFeed(topic, lambda: CommittedReader(settings, [topic]), look, receiver(*keys).select, span))
        return made[-1]

    yield make
    for each in made:
        each.close()


def read_all(feed: TopicFeed, positions: dict[str, int], limit: int = 3) -> list[Item]:
    """Read until the end, and move the positions."""
    found: list[Item] = []

    def has_ended() -> bool:
        portion = feed.read(positions, limit)
        assert len(portion.items) <= limit
        found.extend(portion.items)
        positions.update(portion.positions)
        return portion.is_end

    wait_until(has_ended, "the end of the topic")
    return found


def values(items: list[Item]) -> list[bytes]:
    return [each.value for each in items]


def test_records_are_read_once_across_transactions_and_an_aborted_one_never(topics: KafkaStage, feed: Feeds) -> None:
    positions: dict[str, int] = {}
    live = feed()
    assert read_all(live, positions) == []
    topics.send(b"1", b"2", b"3", b"4", key=b"u", headers=(("notification-id", b"N"), ("transaction-status", b"ACSC")))
    topics.send_in_transaction(b"never", abort=True)
    topics.send_in_transaction(b"5")
    topics.send(b"other", partition=1, key=b"v")
    found = read_all(live, positions)
    assert [each for each in values(found) if each != b"other"] == [b"1", b"2", b"3", b"4", b"5"]
    assert len(found) == 6
    first = found[values(found).index(b"1")]
    assert (first.key, first.notification_id, first.status) == ("u", "N", "ACSC")
    assert first.position == f"{topics.topics.input}-0@0"
    assert read_all(live, positions) == []
    assert read_all(feed(), positions) == [], "a new feed continues where the positions are"
    topics.send(b"6", key=b"u")
    assert values(read_all(live, positions)) == [b"6"]


def test_what_is_not_decided_is_not_read_before_it_is(topics: KafkaStage, feed: Feeds) -> None:
    positions: dict[str, int] = {}
    live = feed()
    with topics.open_transaction(b"later"):
        topics.send(b"behind it", key=b"u")
        assert read_all(live, positions) == []
    found: list[bytes] = []
    wait_until(lambda: found.extend(values(read_all(live, positions))) or len(found) == 2, "both are read")
    assert found == [b"later", b"behind it"]


def test_a_job_reads_its_span_and_ends_and_a_portion_that_was_not_taken_in_is_read_again(topics: KafkaStage, feed: Feeds) -> None:
    from notification_service.delivery.topic_feed import TopicSpan

    topics.send(*(b"%d" % number for number in range(10)), key=b"u")
    topics.send(b"not ours", partition=1, key=b"v")
    identifier = feed()._look().topic_id.hex
    span = TopicSpan(identifier, {0: 2}, {0: 7})
    job, positions = feed(span), dict[str, int]()
    lost = job.read(positions, 2)
    assert values(list(lost.items)) in ([], [b"2", b"3"])
    assert values(read_all(job, positions)) == [b"2", b"3", b"4", b"5", b"6"]
    assert job.read(positions, 2).seals
    assert values(read_all(feed(span), {f"{identifier}/0": 5})) == [b"5", b"6"]
    with pytest.raises(JobRefused, match="was deleted and created again"):
        feed(TopicSpan("0" * 32, {}, {0: 7})).read({}, 2)


def test_what_retention_deleted_before_it_was_read_is_missing_until_that_is_accepted(
    topics: KafkaStage, feed: Feeds, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    topics.send(*(b"%d" % number for number in range(10)), key=b"u")
    positions: dict[str, int] = {}
    live = feed()
    wait_until(lambda: live.read(positions, 3).positions, "the first are read")
    part = f"{live._look().topic_id.hex}/0"
    with closing(KafkaAdminClient(bootstrap_servers=topics.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topics.topics.input, 0): 8})
    with caplog.at_level(logging.ERROR):
        positions = {part: 4}
        assert values(read_all(feed(), positions)) == [b"8", b"9"]
    assert "retention deleted the records from 4 to 8" in caplog.text
    again = feed().read(positions, 3)
    assert (again.missing, (again.lacks or "").partition(",")[0]) == (4, f"4 offsets of {topics.topics.input}")
    after = feed().read(positions | {ACCEPTED: 4}, 3)
    assert (after.missing, after.lacks) == (0, None)
    assert feed().read(positions | after.positions, 3).missing == 0
    assert feed().read({}, 3).missing == 0, "what was deleted before the job began was not for it"


@pytest.mark.parametrize("is_new", [False, True])
def test_offsets_behind_the_end_of_the_log_are_missing_and_what_gets_them_next_is_read(
    topics: KafkaStage, feed: Feeds, is_new: bool
) -> None:
    topics.send(*(b"%d" % number for number in range(6)), key=b"u")
    live, positions = feed(), dict[str, int]()
    assert len(read_all(live, positions)) == 6
    part = f"{live._look().topic_id.hex}/0"
    # As if the brokers had lost four records that were read.
    positions[part] = 10
    portion = (feed() if is_new else live).read(positions, 3)
    assert (portion.missing, portion.positions[part]) == (4, 6)
    assert "the brokers have lost" in (portion.lacks or "")
    positions.update(portion.positions)
    topics.send(b"new", b"newer", key=b"u")
    assert values(read_all(live, positions)) == [b"new", b"newer"]
    assert live.read(positions, 3).missing == 4, "until that is accepted"


def test_a_job_lacks_what_the_brokers_lost_of_its_span_before_it_was_read(topics: KafkaStage, feed: Feeds) -> None:
    from notification_service.delivery.topic_feed import TopicSpan

    topics.send(*(b"%d" % number for number in range(3)), key=b"u")
    # As if the brokers had lost the five records from 3 to 8.
    job, positions = feed(TopicSpan(feed()._look().topic_id.hex, {0: 5}, {0: 8})), dict[str, int]()
    portion = job.read(positions, 3)
    assert (portion.missing, portion.items, portion.is_end) == (2, [], False)
    positions.update(portion.positions)
    topics.send(*(b"%d" % number for number in range(3, 9)), key=b"u")
    assert values(read_all(job, positions)) == [b"5", b"6", b"7"], "what has the offsets before its span is not for it"


def test_a_job_lacks_what_retention_deletes_of_its_span(topics: KafkaStage, feed: Feeds) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    from notification_service.delivery.topic_feed import TopicSpan

    topics.send(*(b"%d" % number for number in range(10)), key=b"u")
    job, positions = feed(TopicSpan(feed()._look().topic_id.hex, {0: 0}, {0: 6})), dict[str, int]()
    with closing(KafkaAdminClient(bootstrap_servers=topics.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topics.topics.input, 0): 4})
    assert values(read_all(job, positions)) == [b"4", b"5"]
    assert job.read(positions, 3).missing == 4
    with closing(KafkaAdminClient(bootstrap_servers=topics.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topics.topics.input, 0): 9})
    assert feed(job._span).read(positions, 3).missing == 4, "what lies behind its end was not for it"


def test_only_what_the_receiver_selects_makes_items_and_the_rest_is_counted(topics: KafkaStage, feed: Feeds) -> None:
    topics.send(b"1", key=b"u", headers=(("transaction-status", b"ACSC"),))
    topics.send(b"2", key=b"u", headers=(("transaction-status", b"RJCT"),))
    live, positions, skipped = feed(None, "select.statuses = [RJCT]"), dict[str, int](), []

    def has_ended() -> bool:
        portion = live.read(positions, 10)
        positions.update(portion.positions)
        skipped.append(portion.not_selected)
        return portion.is_end

    wait_until(has_ended, "the end")
    assert sum(skipped) == 1
