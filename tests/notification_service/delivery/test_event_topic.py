"""The events of jobs on a real topic: each once and in order, whichever process publishes, and whenever one dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest
from harness.waiting import wait_until

from guardian.ports import TransportUnavailable
from tests.notification_service.delivery.test_event_file import Log, event, log

if TYPE_CHECKING:
    from notification_service.delivery.published_topics import EventTopic
    from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


@pytest.fixture
def publisher(topics: KafkaStage) -> Iterator[Callable[[], EventTopic]]:
    from notification_service.delivery.published_topics import EventTopic

    made: list[EventTopic] = []

    def make(log: Log, group: str = "events") -> EventTopic:
        made.append(EventTopic(topics.settings(), topics.topics.notifications, f"{topics.group}-{group}", log))
        return made[-1]

    yield make
    for each in made:
        each._publisher.discard()


def test_events_are_not_published_again_when_the_brokers_have_forgotten_the_offset(topics: KafkaStage, publisher: Any) -> None:
    events = log(3)
    assert publisher(events).publish() == 3
    events.events += log(5).events[3:]
    # A group of another name has no offset, as one whose offset the brokers have deleted.
    assert publisher(events, "forgotten").publish() == 2
    wait_until(lambda: published(topics) == [1, 2, 3, 4, 5], "all events, each once")


def test_the_events_of_a_ledger_that_was_made_anew_are_published_from_the_first_on(topics: KafkaStage, publisher: Any) -> None:
    assert publisher(log(3)).publish() == 3
    assert publisher(Log(log(2).events, ledger="another")).publish() == 2
    wait_until(lambda: published(topics) == [1, 1, 2, 2, 3], "the events of both")


def test_after_a_restore_of_the_ledger_what_was_published_is_not_published_again(topics: KafkaStage, publisher: Any) -> None:
    """Three of four ends came behind the backup; they end again in another order, one with another result."""
    before, events = log(1), log(1)
    assert publisher(before).publish() == 1
    events.mark = before.mark
    before.events += [event(2, "a"), event(3, "b"), event(4, "c")]
    assert publisher(before).publish() == 3
    restored = publisher(events)
    for each in (event(2, "c"), event(3, "b", processed=1), event(4, "d"), event(5, "a")):
        events.events.append(each)
        restored.publish()
    wait_until(lambda: len(published(topics)) == 6, "all ends")
    numbers = sorted((json.loads(each.value)["number"], json.loads(each.value)["job"]) for each in topics.outputs())
    assert numbers == [(1, "j1"), (2, "a"), (3, "b"), (4, "c"), (5, "b"), (6, "d")]
    assert events.mark.compared == 6, "all of it has ended in the ledger: nothing is compared any more"


def test_a_publisher_waits_for_a_position_that_takes_a_second_to_be_known(topics: KafkaStage, publisher: Any) -> None:
    """As on a busy machine, or when another's transaction has not ended. The broker holds the answer back until it has."""
    from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition

    position = {TopicPartition(topics.topics.notifications, 0): OffsetAndMetadata(1, "l", -1)}
    with closing(KafkaProducer(bootstrap_servers=topics.bootstrap, transactional_id=f"{topics.group}-other")) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send_offsets_to_transaction(position, f"{topics.group}-events")
        timer = Timer(1.0, other.commit_transaction)
        timer.start()
        try:
            assert publisher(Log(log(2).events[1:])).publish() == 1
        finally:
            timer.join()
    assert published(topics) == [2]


def published(topics: KafkaStage) -> list[int]:
    return sorted(json.loads(each.value)["number"] for each in topics.outputs())


def test_events_are_published_once_by_publishers_that_take_turns(topics: KafkaStage, publisher: Any) -> None:
    events = log(0)
    first, second = publisher(events), publisher(events)
    assert first.publish() == 0
    for turn in range(1, 7):
        events.events = log(len(events.events) + turn).events
        one, other = (first, second) if turn % 2 else (second, first)

        def try_it(one: EventTopic = one, other: EventTopic = other) -> bool:
            for each in (one, other):
                try:
                    each.publish()
                except TransportUnavailable:
                    continue
            return len(published(topics)) == len(events.events)

        wait_until(try_it, "all events are published")
        assert published(topics) == list(range(1, len(events.events) + 1))


def test_what_a_publisher_left_open_when_it_was_killed_is_published_by_the_next_once(
    topics: KafkaStage, publisher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka.errors import KafkaError

    events = log(3)
    killed = publisher(events)
    killed.publish()
    events.events = log(5).events
    monkeypatch.setattr(
        killed._publisher._producer._producer, "commit_transaction", lambda: (_ for _ in ()).throw(KafkaError("killed"))
    )
    with pytest.raises(Exception, match="killed"):
        killed.publish()
    following = publisher(events)
    wait_until(lambda: _publishes(following), "the next one goes on")
    assert published(topics) == [1, 2, 3, 4, 5]
    with closing(topics.reader(f"{topics.group}-events")) as reader:
        from kafka import TopicPartition

        assert reader.committed(TopicPartition(topics.topics.notifications, 0)) == 5


def _publishes(publisher: EventTopic) -> bool:
    try:
        return publisher.publish() > 0
    except TransportUnavailable:
        return False


def test_a_topic_that_is_missing_is_named_by_the_preflight(topics: KafkaStage) -> None:
    from notification_service.connectors.kafka.preflight import preflight_topics

    there = topics.topics.notifications
    preflight_topics(topics.settings(), [(there, there)])
    with pytest.raises(ExceptionGroup) as found:
        preflight_topics(topics.settings(), [(there, f"{there}-events"), (f"{there}-requests", f"{there}-requests")])
    errors = [str(each) for each in found.value.exceptions]
    assert [name for name in ("events", "requests") if any(f"{there}-{name}" in each for each in errors)] == [
        "events",
        "requests",
    ]
