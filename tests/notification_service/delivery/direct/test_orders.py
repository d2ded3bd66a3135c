"""Orders of an operator: what is skipped, what is refused, and that each order is executed once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

import pytest
from harness.scripted_receiver import OK, Reply, ScriptedReceiver
from harness.waiting import DEADLINE_SECONDS

from notification_service.delivery.direct.core.partition import DirectOrderKind, DirectResult

if TYPE_CHECKING:
    from tests.notification_service.delivery.direct.stage import DirectStage

pytestmark = pytest.mark.slow
FAILS = Reply(500)
FOR_EVER = "retry.attempts = null"


def test_skip_makes_the_blocked_record_a_dead_letter_and_its_key_goes_on(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(FOR_EVER)
    receiving.answers = lambda _key, id_, _nth: FAILS if id_ == "b" else OK
    stage.send([("k", "a"), ("k", "b"), ("k", "c")])
    worker = stage.worker()
    stage.wait(lambda: [each.blocked_count for each in worker.partitions()] == [1, 0], "the blocked record")
    outcome = stage.order(DirectOrderKind.SKIP, 1)
    assert (outcome.result, outcome.text) == (DirectResult.DONE, f"{stage.source}-0@1 is a dead letter")
    stage.wait(lambda: receiving.ids("k") == ["a", "c"], "the next of the key")
    (dead_letter,) = stage.dead_letters()
    assert dead_letter["dead-letter-reason"] == "skipped"
    assert dead_letter["dead-letter-error"] == "me ordered it: a test. The last call failed with: HTTP 500"
    assert dead_letter["notification-id"] == "b"


def test_a_record_that_waits_for_a_receiver_that_sleeps_can_be_skipped(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(FOR_EVER, "suspension { probe = 10m, most = 1h }")
    receiving.answers = lambda _key, _id, _nth: Reply(503, {"retry-after": "600"})
    stage.send([("k", "a")])
    worker = stage.worker()
    stage.wait(lambda: worker.report().shut_because, "the gate is shut")
    assert stage.order(DirectOrderKind.SKIP, 0).result is DirectResult.DONE
    assert [each["notification-id"] for each in stage.dead_letters()] == ["a"]


def test_an_order_waits_for_the_call_that_is_under_way(direct: Callable[..., DirectStage], receiving: ScriptedReceiver) -> None:
    stage = direct(FOR_EVER, "retry.first = 1ms")
    receiving.answers = lambda _key, _id, _nth: Reply(500, after_seconds=1.5)
    stage.send([("k", "a")])
    worker = stage.worker()
    stage.wait(lambda: worker.partitions()[0].blocked_count == 1 if worker.partitions() else False, "it is blocked")
    assert stage.order(DirectOrderKind.SKIP, 0).result is DirectResult.DONE
    assert [each["dead-letter-reason"] for each in stage.dead_letters()] == ["skipped"]


def test_skip_all_tells_of_the_call_that_is_under_way(direct: Callable[..., DirectStage], receiving: ScriptedReceiver) -> None:
    stage = direct(FOR_EVER, "retry.first = 1ms", "timeout = 3m")
    is_ordered = Event()
    receiving.answers = lambda _key, _id, nth: FAILS if nth == 1 or is_ordered.wait(DEADLINE_SECONDS) else OK
    stage.send([("k", "a")])
    worker = stage.worker()
    stage.wait(lambda: worker.partitions()[0].blocked_count == 1 if worker.partitions() else False, "it is blocked")
    outcome = stage.order(DirectOrderKind.SKIP_ALL)
    waits = "0 records became dead letters, and 1 more if the call that is under way fails"
    assert outcome.text == f"{waits}; so does what fails from now on, until `block`"
    is_ordered.set()
    stage.wait(lambda: len(stage.dead_letters()) == 1, "the call has failed")


def test_what_is_not_blocked_is_refused(direct: Callable[..., DirectStage], receiving: ScriptedReceiver) -> None:
    stage = direct(FOR_EVER, "retry.first = 1h", "retry.most = 1h")
    receiving.answers = lambda _key, id_, _nth: FAILS if id_ == "b" else OK
    stage.send([("k", "a"), ("k", "b"), ("k", "c")])
    worker = stage.worker()
    stage.wait(lambda: [each.blocked_count for each in worker.partitions()] == [1, 0], "the blocked record")
    place = f"{stage.source}-0"
    refused = [
        (DirectOrderKind.SKIP, 0, 0, f"{place}@0 is done already, or was moved to another topic, where it blocks nothing"),
        (DirectOrderKind.SKIP, 2, 0, f"{place}@2 is not blocked: no call for it has failed"),
        (DirectOrderKind.SKIP, 3, 0, f"{place}@3 was not read yet, so it cannot be blocked"),
        (DirectOrderKind.BLOCK, None, 0, f"what fails in {place} is not skipped"),
        (DirectOrderKind.SKIP_ALL, None, 1, f"nothing is blocked in {stage.source}-1"),
    ]
    for kind, offset, partition, text in refused:
        outcome = stage.order(kind, offset, partition)
        assert (outcome.result, outcome.text) == (DirectResult.REFUSED, text)
    assert stage.dead_letters() == []
    assert worker.partitions()[0].blocked_count == 1


def test_skip_all_is_kept_over_restarts_and_rebalances_until_block(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(FOR_EVER, "retry.first = 1h", "retry.most = 1h")
    receiving.answers = lambda key, _id, _nth: FAILS if key[0] == "b" else OK
    stage.send([("b1", "1"), ("b2", "2"), ("b1", "3"), ("a", "4")])
    worker = stage.worker()
    stage.wait(lambda: [each.blocked_count for each in worker.partitions()] == [2, 0], "two blocked records")
    outcome = stage.order(DirectOrderKind.SKIP_ALL)
    assert outcome.text == "2 records became dead letters; so does what fails from now on, until `block`"
    stage.wait(lambda: len(stage.dead_letters()) == 3, "the next of the key is tried once")
    again = stage.order(DirectOrderKind.SKIP_ALL)
    assert again.text == f"what fails in {stage.source}-0 is skipped already"
    worker.stop()
    other = stage.worker()
    stage.send([("b3", "5"), ("a", "6")])
    stage.wait(lambda: len(stage.dead_letters()) == 4, "the new owner skips, too")
    assert {each["dead-letter-reason"] for each in stage.dead_letters()} == {"skipped"}
    assert [each.skips_all for each in other.partitions()] == [True, False]
    assert stage.order(DirectOrderKind.BLOCK).result is DirectResult.DONE
    stage.send([("b4", "7")])
    stage.wait(lambda: other.partitions()[0].blocked_count == 1, "it is blocked again")
    assert receiving.ids("a") == ["4", "6"]


def test_an_order_that_is_given_while_no_worker_runs_is_executed_by_the_next_one_and_once(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(FOR_EVER)
    receiving.answers = lambda _key, id_, _nth: FAILS if id_ in "ac" else OK
    stage.send([("k", "a"), ("k", "b")])
    worker = stage.worker()
    stage.wait(lambda: len(receiving.calls) > 1, "it is blocked")
    worker.stop()
    with pytest.raises(AssertionError, match="no outcome"):
        stage.order(DirectOrderKind.SKIP, 0, seconds=0.1)
    worker = stage.worker()
    stage.wait(lambda: receiving.ids("k") == ["b"], "the order was executed")
    worker.stop()
    stage.send([("k", "c")])
    worker = stage.worker()
    stage.wait(lambda: worker.partitions() and worker.partitions()[0].blocked_count == 1, "it is blocked")
    assert [each["notification-id"] for each in stage.dead_letters()] == ["a"]


def test_a_record_that_is_no_order_is_refused_and_the_next_one_is_executed(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct(FOR_EVER)
    receiving.answers = lambda _key, _id, _nth: FAILS
    stage.send([("k", "a")])
    worker = stage.worker()
    stage.wait(lambda: worker.partitions() and worker.partitions()[0].blocked_count == 1, "it is blocked")
    orders = stage.stages[0].orders or ""
    stage.send_raw(orders, [b"nonsense", b'{"is":"order"}', b""])
    assert stage.order(DirectOrderKind.SKIP, 0).result is DirectResult.DONE
    outcomes = [each.value for each in stage.read(orders) if b"outcome" in (each.value or b"")]
    assert len(outcomes) == 4
    assert sum(b"this is no order" in each for each in outcomes) == 3
