"""Dead letters of a receiver: requeued where only its group reads them, each once, under the same idempotency key."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from harness.scripted_receiver import OK, Reply, ScriptedReceiver
from kafka import KafkaProducer

from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters.actions import Edit

if TYPE_CHECKING:
    from tests.notification_service.delivery.direct.stage import DirectStage

pytestmark = pytest.mark.slow
FAILS, WRONG = Reply(500), Reply(400)


def numbers(stage: DirectStage) -> list[str]:
    with closing(stage.letters()) as store:
        return [each.number for each in store.letters()]


def requeue(stage: DirectStage, *named: str, again: bool = False) -> list[tuple[str | None, str | None]]:
    """Return the position and the problem of each outcome."""
    with closing(stage.letters(*named)) as store:
        return [(each.position, each.problem) for each in decisions.requeue_named(store, named, again=again)]


def test_a_requeued_record_comes_to_its_receiver_under_the_same_key_and_to_no_other_reader_of_the_source(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = 1")
    is_ill = True
    receiving.answers = lambda key, _id, _nth: WRONG if key == "ill" and is_ill else OK
    stage.send([("ill", "a"), ("well", "b")], partition=1)
    stage.worker()
    stage.wait(lambda: len(stage.dead_letters()) == 1, "the dead letter")
    (number,) = numbers(stage)
    is_ill = False
    before = len(stage.read(stage.source))
    assert requeue(stage, number) == [(f"{stage.stages[-1].topic}-1@0", None)]
    stage.wait(lambda: ("ill", "a") in receiving.taken, "the requeued record")
    assert len(stage.read(stage.source)) == before, "others who read the source see nothing of it"
    ((position, problem),) = requeue(stage, number)
    assert position is None
    assert "it was requeued" in (problem or "")


def test_a_requeued_record_that_fails_again_is_a_dead_letter_of_its_first_place_and_can_be_requeued(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("policy = blocking-then-retry-topics", "retry.attempts = 1", "retry-topics.intervals = [100ms]")
    receiving.answers = lambda _key, _id, nth: FAILS if nth < 5 else OK
    stage.send([("k", "a")])
    stage.worker()
    stage.wait(lambda: len(stage.dead_letters()) == 1, "the dead letter")
    (first,) = numbers(stage)
    requeue(stage, first)
    # Its attempts are counted anew, in the requeue topic and in the retry topic.
    stage.wait(lambda: len(stage.read(stage.stages[0].dead_letters)) == 3, "the letter, the note and the second letter")
    second = numbers(stage)[-1]
    assert {each["dead-letter-source-position"] for each in stage.dead_letters() if "notification-id" in each} == {
        f"{stage.source}-0@0"
    }
    (position, problem), *_ = requeue(stage, second)
    assert (position, problem) == (f"{stage.stages[-1].topic}-0@2", None), "offset 1 is the end of the first transaction"
    stage.wait(lambda: receiving.taken == [("k", "a")], "the fifth call")


def test_a_value_that_was_edited_is_sent_under_the_same_key(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = 1")
    receiving.answers = lambda _key, _id, nth: WRONG if nth == 1 else OK
    stage.send([("k", "a")])
    stage.worker()
    stage.wait(lambda: len(stage.dead_letters()) == 1, "the dead letter")
    (number,) = numbers(stage)
    with closing(stage.letters(number)) as store:
        (outcome,) = decisions.edit(store, number, Edit(b'{"is": "right"}', "a typing error"), lambda _: None)
    assert outcome.problem is None
    stage.wait(lambda: receiving.taken == [("k", "a")], "the edited record")
    (sent,) = stage.read(stage.stages[-1].topic)
    assert sent.value == b'{"is": "right"}'
    assert dict(sent.headers)["requeued-from"] == number.encode()


def test_what_another_program_wrote_and_what_came_from_another_topic_is_refused(direct: Callable[..., DirectStage]) -> None:
    stage = direct()
    worker = stage.worker()
    stage.wait(lambda: worker.partitions(), "the topics")
    worker.stop()
    topic = stage.stages[0].dead_letters

    def letter(position: str, *more: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        reasons = {"reason": "rejected", "error": "no", "source-position": position, "at": "2026-03-28T23:33:55.941Z"}
        return [*more, *((f"dead-letter-{name}", text.encode()) for name, text in reasons.items())]

    with closing(KafkaProducer(bootstrap_servers=stage.kafka.bootstrap)) as producer:
        producer.send(topic, b"v", b"k", letter(f"{stage.source}-0@0"), 0)
        producer.send(topic, b"v", b"k", letter("OTHER-0@0", ("delivery-id", b"x")), 0)
        producer.send(topic, b"v", b"k", letter(f"{stage.source}-9@0", ("delivery-id", b"x")), 0)
        producer.flush()
    problems = [problem for _, problem in requeue(stage, *(f"{topic}-0#{offset}" for offset in range(3)))]
    assert problems == [
        "it has no header delivery-id, so another program wrote it: find out which",
        f"it came from topic OTHER, but the service reads {stage.source} now",
        f"it came from partition 9, but {stage.stages[-1].topic} has only 2",
    ]
    assert stage.read(stage.stages[-1].topic) == []
