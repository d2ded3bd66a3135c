"""The events of jobs on a real topic: each once and in order, whichever process publishes, and whenever one dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from threading import Timer
from typing import TYPE_CHECKING, Any

import pytest
from harness.waiting import wait_until

from connectors.port import TransportUnavailable

if TYPE_CHECKING:
    from delivery.event_topic import EventTopic
    from tests.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


class Events:
    """The events of a ledger so far."""

    def __init__(self) -> None:
        self.count = 0

    def after(self, number: int, most: int) -> Sequence[bytes]:
        found = range(number + 1, self.count + 1)
        return [json.dumps({"number": each, "job": f"job-{each}"}).encode() for each in found[:most]]


class Mark:
    """The number that the ledger remembers."""

    def __init__(self) -> None:
        self.number, self.ledger = 0, "abc"

    def find(self) -> int:
        return self.number

    def note(self, number: int) -> None:
        self.number = number


@pytest.fixture
def publisher(topics: KafkaStage) -> Iterator[Callable[[], EventTopic]]:
    from delivery.event_topic import EventTopic

    made: list[EventTopic] = []

    mark = Mark()

    def make(group: str = "events", mark: Mark = mark) -> EventTopic:
        made.append(EventTopic(topics.settings(), topics.topics.notifications, f"{topics.group}-{group}", mark))
        return made[-1]

    yield make
    for each in made:
        each._publisher.discard()


def test_events_are_not_published_again_when_the_brokers_have_forgotten_the_offset(topics: KafkaStage, publisher: Any) -> None:
    events = Events()
    events.count = 3
    assert publisher().publish(events.after) == 3
    events.count = 5
    # A group of another name has no offset, as one whose offset the brokers have deleted.
    assert publisher("forgotten").publish(events.after) == 2
    wait_until(lambda: published(topics) == [1, 2, 3, 4, 5], "all events, each once")


def test_the_events_of_a_ledger_that_was_made_anew_are_published_from_the_first_on(topics: KafkaStage, publisher: Any) -> None:
    events, anew = Events(), Mark()
    events.count = 3
    assert publisher().publish(events.after) == 3
    events.count, anew.ledger = 2, "another"
    assert publisher(mark=anew).publish(events.after) == 2
    wait_until(lambda: published(topics) == [1, 1, 2, 2, 3], "the events of both")


def test_a_publisher_waits_for_a_position_that_takes_a_second_to_be_known(topics: KafkaStage, publisher: Any) -> None:
    """As on a busy machine, or when another's transaction has not ended. The broker holds the answer back until it has."""
    from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition

    events = Events()
    events.count = 2
    position = {TopicPartition(topics.topics.notifications, 0): OffsetAndMetadata(1, "abc", -1)}
    with closing(KafkaProducer(bootstrap_servers=topics.bootstrap, transactional_id=f"{topics.group}-other")) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send_offsets_to_transaction(position, f"{topics.group}-events")
        timer = Timer(1.0, other.commit_transaction)
        timer.start()
        try:
            assert publisher().publish(events.after) == 1
        finally:
            timer.join()
    assert published(topics) == [2]


def published(topics: KafkaStage) -> list[int]:
    return sorted(json.loads(each.value)["number"] for each in topics.outputs())


def test_events_are_published_once_by_publishers_that_take_turns(topics: KafkaStage, publisher: Any) -> None:
    first, second, events = publisher(), publisher(), Events()
    assert first.publish(events.after) == 0
    for turn in range(1, 7):
        events.count += turn
        one, other = (first, second) if turn % 2 else (second, first)

        def try_it(one: EventTopic = one, other: EventTopic = other) -> bool:
            for each in (one, other):
                try:
                    each.publish(events.after)
                except TransportUnavailable:
                    continue
            return len(published(topics)) == events.count

        wait_until(try_it, "all events are published")
        assert published(topics) == list(range(1, events.count + 1))


def test_what_a_publisher_left_open_when_it_was_killed_is_published_by_the_next_once(
    topics: KafkaStage, publisher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka.errors import KafkaError

    events, killed = Events(), publisher()
    events.count = 3
    killed.publish(events.after)
    events.count = 5
    monkeypatch.setattr(
        killed._publisher._producer._producer, "commit_transaction", lambda: (_ for _ in ()).throw(KafkaError("killed"))
    )
    with pytest.raises(Exception, match="killed"):
        killed.publish(events.after)
    following = publisher()
    wait_until(lambda: _publishes(following, events), "the next one goes on")
    assert published(topics) == [1, 2, 3, 4, 5]
    with closing(topics.reader(f"{topics.group}-events")) as reader:
        from kafka import TopicPartition

        assert reader.committed(TopicPartition(topics.topics.notifications, 0)) == 5


def _publishes(publisher: EventTopic, events: Events) -> bool:
    try:
        return publisher.publish(events.after) > 0
    except TransportUnavailable:
        return False


def test_a_topic_that_is_missing_is_named_by_the_preflight(topics: KafkaStage) -> None:
    from connectors.kafka.preflight import preflight_topics

    there = topics.topics.notifications
    preflight_topics(topics.settings(), [(there, there)])
    with pytest.raises(ExceptionGroup) as found:
        preflight_topics(topics.settings(), [(there, f"{there}-events"), (f"{there}-requests", f"{there}-requests")])
    told = [str(each) for each in found.value.exceptions]
    assert [name for name in ("events", "requests") if any(f"{there}-{name}" in each for each in told)] == ["events", "requests"]
