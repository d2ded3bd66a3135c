"""Whether a failed call tells of its record or of the receiver: what an outage costs, and what a poison record."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from notification_service.delivery.core.answers import Answer, NoAnswer, Trouble
from tests.notification_service.delivery.direct.fakes import OK, FakeTopic, Worker, Workers, run
from tests.notification_service.delivery.direct.simulated_loop import pass_time

pytestmark = pytest.mark.slow
QUICK = "suspension { probe = 50ms, most = 200ms }"
ONCE = ("policy = blocking", "retry.attempts = 1", QUICK)
TWICE = ("policy = blocking", "retry { attempts = 2, first = 10ms, jitter = 0 }", QUICK)


async def pass_by(worker: Worker, workers: Workers, count: int) -> None:
    """Let the receiver, which answers nothing well, be called a few times, then let it be well."""
    await worker.until(lambda: worker.gate.is_shut, "the gate is shut")
    before = len(workers.caller.calls)
    await worker.until(lambda: len(workers.caller.calls) > before + 5, "probes")
    assert workers.source.letters == []
    workers.caller.answers = lambda _key, _id: OK
    await worker.until(lambda: len(workers.caller.taken) == count, "all")
    assert workers.source.letters == []


@pytest.mark.parametrize("status", [301, 404, 500, 502, 503, 504])
@pytest.mark.parametrize("concurrency", [1, 20])
def test_a_receiver_that_answers_all_so_makes_no_dead_letter(status: int, concurrency: int) -> None:
    async def test() -> None:
        workers = Workers(*ONCE, f"concurrency = {concurrency}")
        for number in range(300):
            workers.source.add(f"k{number % 50}", f"n{number}")
        workers.caller.answers = lambda _key, _id: Answer(status)
        workers.caller.seconds = lambda _id: 0.002
        worker = workers.start()
        await pass_by(worker, workers, 300)
        await worker.stop()

    run(test)


def test_time_outs_of_all_calls_use_up_no_attempts() -> None:
    async def test() -> None:
        workers = Workers(*TWICE)
        for number in range(50):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, _id: NoAnswer(Trouble.BROKEN, "no answer within 10 s")
        worker = workers.start()
        await pass_by(worker, workers, 50)
        await worker.stop()

    run(test)


def test_nothing_moves_to_a_retry_topic_while_all_calls_fail() -> None:
    async def test() -> None:
        topics = (FakeTopic("T"), FakeTopic("T-g-retry-1"))
        workers = Workers("policy = retry-topics", "retry-topics.intervals = [1h]", QUICK, topics=topics)
        for number in range(50):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, _id: Answer(500)
        worker = workers.start()
        await pass_by(worker, workers, 50)
        assert workers.source.published == []
        await worker.stop()

    run(test)


@pytest.mark.parametrize("status", [400, 500])
def test_a_record_that_fails_among_others_is_a_dead_letter_at_once(status: int) -> None:
    async def test() -> None:
        workers = Workers(*ONCE)
        for number in range(20):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, id_: Answer(status) if id_ == "n7" else OK
        worker = workers.start()
        await worker.until(lambda: [id_ for id_, _ in workers.source.letters] == ["n7"], "the letter", 2)
        assert not worker.gate.is_shut
        await worker.stop()

    run(test)


def test_a_record_that_fails_alone_is_a_dead_letter_within_seconds() -> None:
    async def test() -> None:
        workers = Workers(*ONCE)
        workers.source.add("k", "n")
        workers.caller.answers = lambda _key, _id: Answer(400)
        worker = workers.start()
        await worker.until(lambda: workers.source.letters == [("n", "unexpected-answer")], "the letter", 5)
        await worker.stop()

    run(test)


@pytest.mark.parametrize("status", [400, 500])
def test_many_poison_records_one_after_the_other_become_dead_letters_when_others_succeed(status: int) -> None:
    async def test() -> None:
        workers = Workers(*ONCE, "concurrency = 4")
        for number in range(60):
            workers.source.add(f"k{number}", f"{'bad' if 10 <= number < 40 else 'ok'}{number}")
        workers.caller.answers = lambda _key, id_: Answer(status) if id_.startswith("bad") else OK
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.taken) == 30, "what is well")
        feeding = asyncio.create_task(feed(workers))
        await worker.until(lambda: len(workers.source.letters) == 30, "the letters", 60)
        feeding.cancel()
        await worker.stop()

    run(test)


async def feed(workers: Workers) -> None:
    """Send records that are well, now and then."""
    for number in range(100_000):
        workers.source.add(f"f{number}", f"ok-f{number}")
        await pass_time(0.02)


def test_a_record_that_alone_is_answered_403_keeps_the_others_waiting_three_times_and_then_counts() -> None:
    async def test() -> None:
        workers = Workers(*TWICE)
        workers.source.add("poison", "poison")
        workers.caller.answers = lambda _key, id_: Answer(403) if id_ == "poison" else OK
        worker = workers.start()
        feeding = asyncio.create_task(feed(workers))
        await worker.until(lambda: workers.source.letters == [("poison", "attempts-exhausted")], "the letter")
        assert workers.caller.ids().count("poison") < 12
        feeding.cancel()
        await worker.stop()

    run(test)


@pytest.mark.parametrize("refusal", [Answer(403), Answer(503, retry_after_ms=86_400_000)])
def test_a_unit_that_alone_is_refused_keeps_the_others_waiting_three_times_with_all_its_records(refusal: Answer) -> None:
    async def test() -> None:
        workers = Workers(*TWICE)
        for number in range(5):
            workers.source.add("poison", f"poison{number}")
        workers.caller.answers = lambda key, _id: refusal if key == "poison" else OK
        worker = workers.start()
        feeding = asyncio.create_task(feed(workers))
        await worker.until(lambda: len(workers.source.letters) == 5, "the letters")
        assert {reason for _, reason in workers.source.letters} == {"attempts-exhausted"}
        assert workers.caller.ids().count("poison0") < 12
        assert [workers.caller.ids().count(f"poison{number}") for number in range(1, 5)] == [2] * 4
        feeding.cancel()
        await worker.stop()

    run(test)


def test_a_record_that_is_answered_429_waits_longer_each_time() -> None:
    async def test() -> None:
        workers = Workers("policy = blocking", "retry { attempts = 1, first = 1s, factor = 2, most = 8s, jitter = 0 }")
        workers.source.add("busy", "busy")
        workers.caller.answers = lambda _key, _id: Answer(429, retry_after_ms=0)
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.calls) == 7, "calls", 60)
        seconds = [round(later - earlier) for earlier, later in pairwise(each[3] for each in workers.caller.calls)]
        assert seconds == [1, 2, 4, 8, 8, 8]
        assert workers.source.letters == []
        await worker.stop()

    run(test)


def test_a_receiver_that_sleeps_and_is_poisoned_when_it_wakes_loses_only_the_poison() -> None:
    async def test() -> None:
        workers = Workers(*ONCE)
        for number in range(50):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, _id: Answer(503, retry_after_ms=0)
        worker = workers.start()
        await worker.until(lambda: worker.gate.is_shut, "the gate is shut")
        workers.caller.answers = lambda _key, id_: Answer(400) if id_ == "n3" else OK
        await worker.until(lambda: len(workers.caller.taken) == 49, "the others")
        await worker.until(lambda: workers.source.letters == [("n3", "unexpected-answer")], "the letter")
        await worker.stop()

    run(test)


def test_a_gate_that_failures_have_shut_does_not_keep_the_records_from_being_read_that_would_succeed() -> None:
    async def test() -> None:
        workers = Workers(*ONCE)
        for number in range(2_000):
            workers.source.add(f"bad{number % 10}", f"bad{number}")
        workers.source.add("good", "good")
        workers.caller.answers = lambda key, _id: OK if key == "good" else Answer(500)
        worker = workers.start()
        await worker.until(lambda: workers.caller.taken == ["good"], "the last one")
        await worker.kill()

    run(test)
