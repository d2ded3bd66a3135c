"""Retry topics: what fails is moved to a topic from which it is read later; nothing is lost between topics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from harness.scripted_receiver import OK, Reply, ScriptedReceiver

from resequencer.clock import instant_of

if TYPE_CHECKING:
    from tests.notification_service.delivery.direct.stage import DirectStage

pytestmark = pytest.mark.slow
FAILS = Reply(500)
POLICY = "policy = retry-topics"


def test_a_topic_per_interval_has_the_partitions_of_the_source_and_keeps_records_long_enough(
    direct: Callable[..., DirectStage],
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [1s, 10m]", partitions=3)
    worker = stage.worker()
    stage.wait(lambda: len(worker.report().partitions) == 12, "all topics are read")
    worker.stop()
    names = [f"{stage.source}-{stage.group}-{each}" for each in ("retry-1", "retry-2", "dlq")]
    with closing(stage.kafka.admin()) as admin:
        found = {each["name"]: each for each in admin.describe_topics(names)}
    assert [len(found[each]["partitions"]) for each in names] == [3, 3, 3]
    retentions = [stage.topics_configuration(each)["retention.ms"] for each in names[:2]]
    week = 7 * 86_400_000
    assert retentions == [str(2_000 + week), str(1_200_000 + week)]
    for each in names:
        found = stage.topics_configuration(each)
        assert (found["cleanup.policy"], found["retention.bytes"]) == ("delete", "-1"), "whatever brokers do by default"
        assert int(found["max.message.bytes"]) == 1_048_588 + 65_536, "a record gets headers"
    assert [stage.topics_configuration(each)["message.timestamp.type"] for each in (*names, stage.stages[-1].topic)] == [
        "LogAppendTime",
        "LogAppendTime",
        "CreateTime",
        "LogAppendTime",
    ], "no worker's clock decides when a record is deleted that is still to be delivered"


def test_a_large_record_is_moved_and_keeps_its_value_as_a_dead_letter(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [100ms]", partitions=1)
    stage.alter(stage.source, {"max.message.bytes": str(3 << 20)})
    receiving.answers = lambda _key, _id, _nth: FAILS
    stage.send([("k", "a")], size=2 << 20)
    stage.worker()
    stage.wait(lambda: len(receiving.calls) == 2, "it was moved to the retry topic")
    stage.wait(lambda: stage.dead_letters(), "the dead letter")
    (letter,) = stage.read(stage.stages[0].dead_letters)
    assert dict(letter.headers)["dead-letter-reason"] == b"attempts-exhausted"
    assert len(letter.value) == 2 << 20


def test_a_topic_that_is_too_small_or_forgets_too_early_is_changed_at_the_next_start(
    direct: Callable[..., DirectStage],
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [1s]", partitions=1)
    worker = stage.worker()
    stage.wait(lambda: len(worker.report().partitions) == 3, "all topics are read")
    worker.stop()
    letters, retries = stage.stages[0].dead_letters, stage.stages[1].topic
    stage.alter(stage.source, {"max.message.bytes": str(3 << 20)})
    stage.alter(letters, {"retention.ms": "86400000"})
    stage.configure(POLICY, "retry-topics.intervals = [30d]")
    worker = stage.worker()
    stage.wait(lambda: len(worker.report().partitions) == 3, "all topics are read")
    found = stage.topics_configuration(retries)
    assert found["retention.ms"] == str(67 * 86_400_000)
    assert found["max.message.bytes"] == str((3 << 20) + 65_536)
    assert stage.topics_configuration(letters)["retention.ms"] == "86400000", "how long dead letters are kept is an operator's"


def test_what_lies_in_a_topic_whose_interval_was_taken_away_is_delivered(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [50ms, 1h]", partitions=1)
    receiving.answers = lambda _key, _id, nth: FAILS if nth < 3 else OK
    stage.send([("k", "a")])
    worker = stage.worker()
    left = stage.stages[2].topic
    stage.wait(lambda: stage.read(left), "it is in the second retry topic")
    worker.stop()
    stage.configure(POLICY, "retry-topics.intervals = [50ms]")
    worker = stage.worker()
    stage.wait(lambda: receiving.taken == [("k", "a")], "it is delivered at once")
    worker.stop()
    worker = stage.worker()
    stage.wait(lambda: len(worker.report().partitions) == 3, "it has been read to its end, and is read no more")


def test_each_record_comes_at_its_time_and_is_a_dead_letter_when_all_intervals_are_over(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [500ms, 2s]")
    receiving.answers = lambda key, _id, nth: FAILS if key == "ill" or (key == "soon" and nth == 1) else OK
    stage.send([("ill", "a"), ("soon", "b"), ("well", "c"), ("ill", "d")])
    stage.worker()
    stage.wait(lambda: len(receiving.calls) == 9, "all calls")
    stage.wait(lambda: len(stage.dead_letters()) == 2, "the dead letters")
    assert set(receiving.taken) == {("well", "c"), ("soon", "b")}
    for id_ in ("a", "d"):
        at = [each.at for each in receiving.calls if each.id == id_]
        assert len(at) == 3
        assert at[1] - at[0] >= 0.5
        assert at[2] - at[1] >= 2
    letters = {each["notification-id"]: each for each in stage.dead_letters()}
    assert {each["dead-letter-reason"] for each in letters.values()} == {"attempts-exhausted"}
    assert letters["d"]["dead-letter-source-position"] == f"{stage.source}-0@3"
    assert not any(name in letters["a"] for name in ("delivery-attempts", "delivery-submitted-at"))
    (moved, *_) = [each for each in stage.read(stage.stages[2].topic) if dict(each.headers)["notification-id"] == b"a"]
    texts = {name: value.decode() for name, value in moved.headers}
    assert (texts["delivery-attempts"], texts["delivery-back-off"], texts["delivery-error"]) == (
        "2",
        "2000",
        "HTTP 500 (after 1 attempt)",
    )
    assert texts["delivery-source-position"] == f"{stage.source}-0@0"
    assert 0 <= moved.timestamp - instant_of(texts["delivery-submitted-at"]) < 60_000
    assert (moved.key, moved.value) == (b"ill", b"{}")


def test_blocking_then_retry_topics_makes_its_attempts_in_place_first(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(
        "policy = blocking-then-retry-topics",
        "retry.intervals = [100ms]",
        "retry.attempts = 3",
        "retry-topics.intervals = [1s]",
    )
    receiving.answers = lambda _key, id_, nth: FAILS if id_ == "a" and nth < 4 else OK
    stage.send([("k", "a"), ("k", "b")])
    stage.worker()
    stage.wait(lambda: len(receiving.taken) == 2, "both")
    assert receiving.taken == [("k", "b"), ("k", "a")], "the key waits for the attempts in place, and not for the retry topic"
    at = [each.at for each in receiving.calls if each.id == "a"]
    assert len(at) == 4
    assert at[3] - at[2] >= 1
    assert stage.dead_letters() == []


def test_an_answer_that_will_not_change_is_a_dead_letter_at_once(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [1h]")
    receiving.answers = lambda _key, _id, _nth: Reply(400)
    stage.send([("k", "a")])
    stage.worker()
    stage.wait(lambda: [each["dead-letter-reason"] for each in stage.dead_letters()] == ["unexpected-answer"], "the dead letter")
    assert stage.read(stage.stages[1].topic) == []


def test_while_the_receiver_sleeps_nothing_moves(direct: Callable[..., DirectStage], receiving: ScriptedReceiver) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [1h]")
    receiving.answers = lambda _key, _id, _nth: Reply(503, {"retry-after": "0"})
    stage.send([(f"k{number}", f"n{number}") for number in range(50)])
    worker = stage.worker()
    stage.wait(lambda: worker.report().shut_because and len(receiving.calls) > 22, "probes")
    receiving.answers = lambda _key, _id, _nth: OK
    stage.wait(lambda: len(receiving.taken) == 50, "all")
    assert stage.read(stage.stages[1].topic) == []


def test_a_source_that_grows_is_delivered_and_its_other_topics_grow_at_the_next_start(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(POLICY, "retry-topics.intervals = [500ms]")
    worker = stage.worker()
    stage.send([("k", "a")])
    stage.wait(lambda: len(receiving.taken) == 1, "the first record")
    with closing(stage.kafka.admin()) as admin:
        admin.create_partitions({stage.source: 3})
    stage.send([("k", "b")], partition=2)
    stage.wait(lambda: len(receiving.taken) == 2, "a record of the new partition")
    worker.stop()
    receiving.answers = lambda _key, id_, nth: FAILS if id_ == "c" and nth == 1 else OK
    stage.send([("k", "c")], partition=2)
    stage.worker()
    stage.wait(lambda: len(receiving.taken) == 3, "a record that is moved")
    names = [stage.stages[1].topic, stage.stages[0].dead_letters, stage.stages[0].orders]
    with closing(stage.kafka.admin()) as admin:
        assert [len(each["partitions"]) for each in admin.describe_topics(names)] == [3, 3, 3]
