"""Blocking: what fails is tried again in its place; its key waits, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from harness.scripted_receiver import OK, Reply, ScriptedReceiver

from guardian.positions import DoneOffsets

if TYPE_CHECKING:
    from tests.notification_service.delivery.direct.stage import DirectStage, Worker

pytestmark = pytest.mark.slow
FAILS = Reply(500)


def records(keys: int, each: int) -> list[tuple[str, str]]:
    """Return keys and ids, the keys in turn."""
    return [(f"k{key}", f"k{key}-{number}") for number in range(each) for key in range(keys)]


def is_full(worker: Worker) -> bool:
    """Return whether a partition is paused because its position can list no more."""
    return any("list" in (each.pause or "") for each in worker.partitions())


def test_each_key_keeps_its_order_while_other_keys_of_the_partition_go_on(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = null")
    is_ill = True
    receiving.answers = lambda key, _id, _nth: FAILS if key == "k0" and is_ill else OK
    stage.send(records(3, 20))
    worker = stage.worker()
    stage.wait(lambda: len(receiving.taken) == 40, "the other keys")
    stage.wait(lambda: (found := stage.position()) and found.offset == 0 and len(found.metadata) > 60, "what is done ahead")
    (report,) = [each for each in worker.partitions() if each.partition.number == 0]
    assert (report.position, report.open_count, report.blocked_count) == (0, 20, 1)
    assert (report.blocked[0].origin.offset, report.blocked[0].key, report.blocked[0].error) == (0, "k0", "HTTP 500")
    is_ill = False
    stage.wait(lambda: len(receiving.taken) == 60, "all")
    for key in ("k0", "k1", "k2"):
        assert receiving.ids(key) == [f"{key}-{number}" for number in range(20)]
    stage.wait(lambda: stage.position().offset == 60, "the position")
    assert len(receiving.taken) == len(set(receiving.taken))


def test_what_was_done_ahead_is_not_called_again_after_a_stop(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = null")
    receiving.answers = lambda key, _id, _nth: FAILS if key == "k0" else OK
    stage.send(records(3, 20))
    worker = stage.worker()
    stage.wait(lambda: len(receiving.taken) == 40, "the other keys")
    worker.stop()
    assert stage.position().offset == 0
    receiving.answers = lambda _key, _id, _nth: OK
    stage.worker()
    stage.wait(lambda: len(receiving.ids("k0")) == 20, "the rest")
    stage.wait(lambda: stage.position().offset == 60, "the position")
    stage.send([("k", "behind all")])
    stage.wait(lambda: stage.position().offset == 61, "the position behind all")
    assert len(receiving.taken) == 61
    assert receiving.ids("k0") == [f"k0-{number}" for number in range(20)]


def test_the_partition_pauses_when_the_bound_is_reached_and_goes_on_behind_it(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = null", "blocked-bytes = 64K")
    receiving.answers = lambda _key, _id, _nth: FAILS
    stage.send([("k", f"n{number}") for number in range(2_000)], partition=0, size=200)
    stage.send([("other", "o")], partition=1)
    worker = stage.worker()
    stage.wait(lambda: any(each.pause for each in worker.partitions()), "the pause")
    before = worker.partitions()[0]
    assert "blocked-bytes" in (before.pause or "")
    assert before.open_count < 1_500
    for number in range(2, 5):
        stage.send([("other", f"o{number}")], partition=1)
        stage.wait(lambda number=number: worker.partitions()[1].open_count == number, "the other partition is read on")
    assert worker.partitions()[0].open_count == before.open_count
    assert [each.blocked_count for each in worker.partitions()] == [1, 1]
    receiving.answers = lambda _key, _id, _nth: OK
    stage.wait(lambda: len(receiving.ids("k")) == 2_000, "all")
    assert receiving.ids("k") == [f"n{number}" for number in range(2_000)]


@pytest.mark.nightly("delivery")
def test_a_position_that_can_list_no_more_pauses_the_partition(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notification_service.delivery.direct.core.position_metadata.MAX_CHARACTERS", 700)
    stage = direct("retry.first = 1h", "retry.most = 1h", "concurrency = 100", "blocked-bytes = 1G")
    receiving.answers = lambda key, _id, _nth: FAILS if key[0] == "b" else OK
    # Every other record is open, over 5 000 offsets: a bit for each is more than a position has room for.
    stage.send([(f"{'ab'[number % 2]}{number % 200}", f"n{number}") for number in range(5_000)])
    worker = stage.worker()
    stage.wait(lambda: is_full(worker), "the pause")
    worker.stop()
    again = stage.worker()
    stage.wait(lambda: is_full(again), "the pause after a restart")
    assert len(set(receiving.taken)) == len(receiving.taken) < 2_300, "what was done ahead is not called again"
    receiving.answers = lambda _key, _id, _nth: OK
    again.stop()
    stage.worker()
    stage.wait(lambda: len(set(receiving.taken)) == 5_000, "all", 240)
    assert len(receiving.taken) == 5_000


def test_attempts_and_their_waits_are_those_of_the_policy_and_then_it_is_a_dead_letter(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.intervals = [100ms, 500ms, 200ms]", "retry.attempts = 5")
    receiving.answers = lambda _key, id_, _nth: FAILS if id_ == "bad" else OK
    stage.send([("k", "bad"), ("k", "good")])
    stage.worker()
    stage.wait(lambda: receiving.taken == [("k", "good")], "the next of the key")
    at = [each.at for each in receiving.calls if each.id == "bad"]
    assert len(at) == 5
    waits = [later - earlier for earlier, later in pairwise(at)]
    assert all(wait >= least for wait, least in zip(waits, (0.1, 0.5, 0.2, 0.2), strict=True)), waits
    stage.wait(lambda: stage.position().offset == 2, "the position")
    (letter,) = stage.dead_letters()
    assert letter["dead-letter-reason"] == "attempts-exhausted"
    assert letter["dead-letter-error"] == "HTTP 500 (after 5 attempts)"
    assert letter["dead-letter-source-position"] == f"{stage.source}-0@0"
    assert letter["notification-id"] == "bad"


def test_what_will_never_be_taken_is_a_dead_letter_at_once_and_the_next_of_the_key_goes_on(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = null", "reject.when.status = [422]")
    receiving.answers = lambda _key, id_, _nth: {"a": Reply(400), "b": Reply(422)}.get(id_, OK)
    stage.send([("k", "a"), ("k", "b"), ("", "no key"), ("k", "c")])
    stage.worker()
    stage.wait(lambda: stage.position() and stage.position().offset == 4, "the position")
    assert receiving.taken == [("k", "c")]
    assert [each.nth for each in receiving.calls] == [1, 1, 1]
    reasons = [each["dead-letter-reason"] for each in stage.dead_letters()]
    assert sorted(reasons) == ["rejected", "undeliverable", "unexpected-answer"]


def test_a_receiver_that_sleeps_is_probed_and_no_attempt_counts(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.attempts = 2")
    receiving.answers = lambda _key, _id, _nth: Reply(503, {"retry-after": "0"})
    stage.send(records(20, 2))
    worker = stage.worker()
    stage.wait(lambda: worker.report().shut_because, "the gate is shut")
    stage.wait(lambda: len(receiving.calls) >= 22, "two probes")
    assert len(receiving.calls) <= 25, "one probe after the other, not all records"
    receiving.answers = lambda _key, _id, _nth: OK
    stage.wait(lambda: len(receiving.taken) == 40, "all")
    assert worker.report().shut_because is None
    assert stage.dead_letters() == []


def test_a_stop_interrupts_a_wait(direct: Callable[..., DirectStage], receiving: ScriptedReceiver) -> None:
    stage = direct("retry.first = 1h", "retry.most = 1h")
    receiving.answers = lambda key, _id, _nth: FAILS
    stage.send([("k", "a")])
    worker = stage.worker()
    stage.wait(lambda: len(receiving.calls) == 1, "the call")
    worker.stop()
    assert stage.position() is None or stage.position().offset == 0


def test_a_rebalance_interrupts_waits_and_the_new_owner_goes_on_with_what_is_open(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.first = 1h", "retry.most = 1h", partitions=4)
    receiving.answers = lambda key, id_, nth: FAILS if key == "k0" and id_.endswith("-0") and nth == 1 else OK
    for number in range(4):
        stage.send([(f"k{key}", f"{number}-{key}-{each}") for each in range(5) for key in range(3)], partition=number)
    first = stage.worker()
    stage.wait(lambda: len(receiving.taken) == 40, "what is not blocked")
    stage.wait(lambda: all(each.position == 0 and each.open_count == 5 for each in first.partitions()), "four open heads")
    # What ended after the last commit is called again by the next owner.
    listed = [DoneOffsets(15, tuple(range(at, at + 1) for at in range(0, 15, 3)))] * 4
    stage.wait(lambda: [stage.done_ahead(number) for number in range(4)] == listed, "what is done ahead is listed")
    second = stage.worker()
    stage.wait(lambda: len(second.partitions()) == len(first.partitions()) == 2, "the partitions are shared out")
    # The new owner does not know of the wait: it calls at once.
    moved = [each.partition.number for each in second.partitions()]
    stage.wait(lambda: len(set(receiving.taken)) == 50, "what the new owner has")
    assert {id_[0] for key, id_ in receiving.taken if key == "k0"} == {str(number) for number in moved}
    assert len(receiving.taken) == 50, "what was done ahead is not called again"


def test_a_key_that_is_blocked_for_longer_than_the_poll_interval_keeps_the_worker_in_its_group(
    direct: Callable[..., DirectStage], receiving: ScriptedReceiver
) -> None:
    stage = direct("retry.first = 1h", "retry.most = 1h")
    stage.consumer = {"max.poll.interval.ms": 5_000, "session.timeout.ms": 60_000}
    receiving.answers = lambda key, _id, nth: FAILS if key == "k0" and nth == 1 else OK
    stage.send(records(3, 10))
    worker = stage.worker()
    stage.wait(lambda: len(receiving.taken) == 20, "the other keys")
    before = stage.members()
    stage.topics.wait_beyond_poll_interval(5_000)
    assert stage.members() == before != [], "a member that was thrown out comes back under another name"
    assert len(receiving.calls) == 21
    assert worker.report().problem is None


@pytest.mark.nightly("brokers")
def test_brokers_that_are_away_for_a_while_cost_nothing_but_time(
    struck_server: Callable[..., Any], receiving: ScriptedReceiver
) -> None:
    from servers.kafka import KafkaServer
    from tests.notification_service.delivery.direct.stage import DirectStage

    kafka = struck_server(KafkaServer)
    stage = DirectStage(kafka, receiving.url, "retry.attempts = null", "concurrency = 4")
    try:
        receiving.answers = lambda _key, id_, nth: FAILS if id_.endswith("7") and nth == 1 else Reply(201, after_seconds=0.01)
        stage.send(records(20, 60))
        worker = stage.worker()
        stage.wait(lambda: len(receiving.taken) > 200, "some")
        kafka.kill()
        stage.wait(lambda: worker.report().problem, "the problem is told")
        kafka.start()
        stage.wait(lambda: len(set(receiving.taken)) == 1_200, "all", 180)
        stage.wait(lambda: stage.position() and stage.position().offset == 1_200, "the position")
        for key in range(20):
            assert receiving.ids(f"k{key}") == [f"k{key}-{number}" for number in range(60)]
        assert stage.dead_letters() == []
        stage.wait(lambda: worker.report().problem is None, "all topics are read again")
    finally:
        stage.close()
