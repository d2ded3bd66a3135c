"""A receiver of topics that is paused: no worker calls it, after any restart and in any topic, until it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from harness.scripted_receiver import OK, Reply, ScriptedReceiver

from notification_service.delivery.core.jobs import Pause
from notification_service.delivery.direct.core.partition import DirectOrderKind, DirectResult
from notification_service.delivery.errors import OrderRefused

if TYPE_CHECKING:
    from tests.notification_service.delivery.direct.stage import DirectStage

pytestmark = pytest.mark.slow


def test_a_paused_receiver_is_called_by_no_worker_until_it_is_resumed(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("policy = retry-topics", "retry-topics.intervals = [100ms]")
    receiving.answers = lambda key, _id, nth: Reply(500) if key == "bad" and nth == 1 else OK
    first, second = stage.worker(), stage.worker()
    stage.send([("a", "1")])
    stage.send([("b", "2")], partition=1)
    stage.wait(lambda: len(receiving.calls) == 2, "both partitions are delivered")
    orders = stage.stages[0].orders or ""
    stage.alter(orders, {"retention.ms": "3600000"})
    with pytest.raises(OrderRefused, match=r"retention\.ms of topic .* is 3600000, so the pause would end"):
        stage.order(DirectOrderKind.PAUSE)
    stage.alter(orders, {"retention.ms": "-1"})
    paused = stage.order(DirectOrderKind.PAUSE)
    assert (paused.result, "no worker begins a call" in paused.text) == (DirectResult.DONE, True)
    for each in (first, second):
        stage.wait(lambda each=each: each.report().pause, "each worker knows it")
    stage.send([("a", "3"), ("bad", "4")])
    stage.send([("b", "5")], partition=1)
    first.stop()
    third = stage.worker()
    stage.wait(lambda: third.report().pause, "a new worker knows it")
    stage.wait(lambda: sum(each.open_count for each in (*second.partitions(), *third.partitions())) == 3, "what comes is read")
    assert {each.report().pause for each in (second, third)} == {Pause("2026-03-28T00:00:00Z", "me", "a test")}
    assert len(receiving.calls) == 2, "no call by either worker"
    second.stop()
    third.stop()
    fourth = stage.worker()
    stage.wait(lambda: fourth.report().pause, "it is kept while no worker runs")
    stage.wait(lambda: sum(each.open_count for each in fourth.partitions()) == 3, "it owns all")
    assert len(receiving.calls) == 2
    assert stage.order(DirectOrderKind.RESUME).result is DirectResult.DONE
    stage.wait(lambda: len(receiving.calls) == 6, "each is called, and the failed one again from its retry topic")
    assert fourth.report().pause is None


def test_a_blocked_record_and_a_shut_gate_are_tried_now_once(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry { first = 1h, most = 1h, attempts = null }", "suspension { probe = 1h, most = 2h }")
    asleep = Reply(503, {"retry-after": "600"})
    receiving.answers = lambda key, _id, nth: OK if nth > 1 else asleep if key == "away" else Reply(500)
    stage.send([("k", "a"), ("k", "b"), ("other", "c")])
    worker = stage.worker()
    stage.wait(lambda: worker.partitions() and worker.partitions()[0].blocked_count == 2, "they are blocked")
    assert stage.order(DirectOrderKind.RETRY_NOW, 0).text == f"{stage.source}-0@0 is called next"
    stage.wait(lambda: len(receiving.calls) == 4, "its key continues, and the next one fails")
    assert receiving.ids("k") == ["a"]
    stage.send([("away", "d")])
    stage.wait(lambda: worker.report().shut_because, "the gate is shut")
    assert stage.order(DirectOrderKind.RETRY_NOW).result is DirectResult.DONE
    stage.wait(lambda: worker.report().shut_because is None, "the probe was made at once")
    assert (receiving.ids("k"), len(receiving.calls)) == (["a", "b"], 6), "each call was made once"
    assert stage.order(DirectOrderKind.RETRY_NOW, 0).result is DirectResult.REFUSED
