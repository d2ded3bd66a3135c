"""A worker on topics in memory: who gets the calls, what a kill leaves, and when no more calls begin."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from guardian.headers import Way, moved_headers
from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.delivery.core.answers import Answer
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, encode
from resequencer.record import Origin, Partition
from tests.notification_service.delivery.direct.fakes import NOW, OK, FakeCaller, FakeTopic, Workers, run
from tests.notification_service.delivery.direct.simulated_loop import pass_time, running_loop

pytestmark = pytest.mark.slow
P = Partition("T", 0)
AWAY = TransportUnavailable("no broker answers")
FOR_EVER = ("policy = blocking", "retry.attempts = null")


def test_a_source_with_a_backlog_does_not_keep_retry_topics_from_their_calls() -> None:
    async def test() -> None:
        source, retries = FakeTopic("T", 2), FakeTopic("T-g-retry-1", 2)
        workers = Workers("policy = retry-topics", "retry-topics.intervals = [1s]", "concurrency = 4", topics=(source, retries))
        for number in range(4_000):
            source.add(f"k{number % 100}", f"s{number}", number % 2)
        for number in range(20):
            retries.add(f"r{number}", f"r{number}", number % 2)
        workers.caller.seconds = lambda _id: 0.002
        worker = workers.start()
        await worker.until(lambda: sum(each.startswith("r") for each in workers.caller.taken) == 20, "the retried records")
        assert len(workers.caller.taken) < 1_000, "they came in turn with those of the source"
        await worker.kill()

    run(test)


def test_partitions_have_their_turns_too() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "concurrency = 1", topics=[FakeTopic("T", 3)])
        for number in range(300):
            workers.source.add(f"k{number}", f"0-{number}", 0)
        for number in range(3):
            workers.source.add("k", f"1-{number}", 1)
            workers.source.add("k", f"2-{number}", 2)
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.taken) == 306, "all")
        assert max(workers.caller.taken.index(f"{at}-2") for at in (1, 2)) < 150
        await worker.kill()

    run(test)


def test_the_waits_between_attempts_are_those_of_the_policy() -> None:
    async def test() -> None:
        workers = Workers("policy = blocking", "retry.intervals = [100ms, 500ms, 200ms]", "retry.attempts = 5")
        for id_ in ("bad", "good"):
            workers.source.add("k", id_)
        workers.caller.answers = lambda _key, id_: Answer(500) if id_ == "bad" else OK
        worker = workers.start()
        await worker.until(lambda: workers.caller.taken == ["good"], "the next of the key")
        at = [each[3] for each in workers.caller.calls if each[2] == "bad"]
        waits = [later - earlier for earlier, later in pairwise(at)]
        assert waits == pytest.approx([0.1, 0.5, 0.2, 0.2], abs=0.05)
        await worker.stop()

    run(test)


def test_a_kill_before_the_dead_letter_of_a_head_is_committed_does_not_let_the_next_overtake_it() -> None:
    async def test() -> None:
        workers = Workers("policy = blocking", "retry.attempts = 2", "retry.first = 10ms", "retry.jitter = 0")
        for number in range(4):
            workers.source.add("k", f"n{number}")
        workers.caller.answers = lambda _key, id_: Answer(500) if id_ == "n0" else OK
        worker = workers.start()
        worker.transports["T"].publishes = AWAY
        await worker.until(lambda: workers.caller.ids().count("n0") == 2, "all attempts")
        await pass_time(1.2)
        assert workers.caller.taken == [], "the letter is not committed"
        await worker.kill()
        workers.caller.answers = lambda _key, _id: OK
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.taken) == 4, "all")
        assert workers.caller.taken == ["n0", "n1", "n2", "n3"]
        await worker.stop()

    run(test)


@pytest.mark.parametrize("kind", [DirectOrderKind.SKIP, DirectOrderKind.SKIP_ALL])
def test_a_kill_before_a_skip_is_committed_does_not_let_the_next_of_the_key_overtake(kind: DirectOrderKind) -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "retry.first = 10ms", "retry.jitter = 0")
        for number in range(3):
            workers.source.add("k", f"n{number}")
        workers.caller.answers = lambda _key, id_: Answer(500) if id_ == "n0" else OK
        worker = workers.start()
        await worker.until(lambda: workers.caller.ids().count("n0") == 2, "it is blocked")
        offset = 0 if kind is DirectOrderKind.SKIP else None
        order = DirectOrder(id="o", order=kind, by="me", because="why", at="2026-03-28T00:00:00Z", offset=offset)
        worker.transports["T"].publishes = AWAY
        workers.orders.given.append(encode(order))
        await worker.until(lambda: not worker.stages[0].partitions[0][0].blocked_count, "it is skipped", 30)
        await pass_time(0.2)
        assert workers.caller.taken == []
        await worker.kill()
        workers.caller.answers = lambda _key, _id: OK
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.taken) >= 2, "the others")
        assert workers.caller.taken in (["n0", "n1", "n2"], ["n1", "n2"])
        await worker.stop()

    run(test)


def test_a_worker_without_brokers_begins_no_more_calls_when_its_session_is_over() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "concurrency = 4")
        for number in range(20_000):
            workers.source.add(f"k{number % 50}", f"n{number}")
        workers.caller.seconds = lambda _id: 0.005
        worker = workers.start(session_ms=500)
        await worker.until(lambda: len(workers.caller.calls) > 50, "some calls")
        worker.transports["T"].polls = worker.transports["T"].publishes = AWAY
        since = running_loop().time()
        await pass_time(2)
        assert max(each[3] for each in workers.caller.calls) < since + 0.8
        worker.transports["T"].polls = worker.transports["T"].publishes = None
        before = len(workers.caller.calls)
        await worker.until(lambda: len(workers.caller.calls) > before + 50, "it goes on")
        await worker.kill()

    run(test)


def test_a_worker_whose_machine_was_suspended_begins_no_call_before_it_has_polled() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "concurrency = 4")
        for number in range(20_000):
            workers.source.add(f"k{number % 50}", f"n{number}")
        workers.caller.seconds = lambda _id: 0.005
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.calls) > 50, "some calls")
        worker.transports["T"].polls = AWAY
        workers.clock.suspended_ms = 60_000
        since = running_loop().time()
        await pass_time(2)
        assert max(each[3] for each in workers.caller.calls) <= since, "another worker may have the partitions"
        worker.transports["T"].polls = None
        before = len(workers.caller.calls)
        await worker.until(lambda: len(workers.caller.calls) > before + 50, "it goes on")
        await worker.kill()

    run(test)


def test_while_commits_fail_and_polls_do_not_no_more_calls_begin_either() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "concurrency = 4")
        for number in range(20_000):
            workers.source.add(f"k{number % 50}", f"n{number}")
        workers.caller.seconds = lambda _id: 0.005
        worker = workers.start(session_ms=500)
        await worker.until(lambda: len(workers.caller.calls) > 50, "some calls")
        worker.transports["T"].publishes = AWAY
        since = running_loop().time()
        await pass_time(2.5)
        assert max(each[3] for each in workers.caller.calls) < since + 1.2
        await worker.kill()

    run(test)


def test_a_refused_commit_keeps_waits_and_attempts_and_what_was_done_is_not_called_again() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "retry.first = 1h", "retry.most = 1h")
        for number in range(100):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, id_: Answer(500) if int(id_[1:]) % 2 else OK
        worker = workers.start()
        worker.transports["T"].publishes = TransportRefused("topic dlq", "it accepts no dead letter")
        await worker.until(lambda: worker.stages[0].problem, "the problem")
        await pass_time(2.5)
        assert len(workers.caller.calls) <= 100
        assert len(set(workers.caller.ids())) == len(workers.caller.calls), "none is called a second time"
        for _ in range(100):  # A new transport has the troubles of the one before.
            worker.transports["T"].publishes = None
            await pass_time(0.02)
        await worker.until(lambda: len(set(workers.caller.ids())) == 100, "the rest")
        await worker.until(lambda: P in workers.source.positions, "a commit")
        assert len(workers.caller.calls) == 100
        assert (worker.open_counts, worker.stages[0].problem) == ([50], None)
        await worker.kill()

    run(test)


def test_a_position_that_another_worker_has_moved_ends_what_was_known_of_the_partition() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "retry.first = 1h", "retry.most = 1h")
        for number in range(4):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, id_: OK if id_ == "n0" else Answer(500)
        worker = workers.start()
        await worker.until(lambda: (found := workers.source.positions.get(P)) and found.offset == 1, "a commit")
        other = workers.start(caller=(caller := FakeCaller()))
        await other.until(lambda: len(caller.taken) == 3, "what was open")
        await other.stop()
        worker.transports["T"].polls = TransportRefused("T", "damaged")
        await worker.until(lambda: worker.open_counts == [0], "it is taken over anew")
        assert len(workers.caller.calls) == 4
        await worker.kill()

    run(test)


def test_what_was_answered_is_not_called_again_after_a_stop_though_one_call_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("notification_service.delivery.direct.consumer._DRAIN_SECONDS", 2.0)
    monkeypatch.setattr("notification_service.delivery.direct.consumer._LAST_COMMIT_SECONDS", 1.0)

    async def test() -> None:
        workers = Workers(*FOR_EVER, "concurrency = 20", "timeout = 60s")
        for number in range(200):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.seconds = lambda id_: 50 if id_ == "n0" else 0.3
        worker = workers.start()
        await worker.until(lambda: len(workers.caller.taken) > 20, "some answers")
        await worker.stop()
        done = set(workers.caller.taken)
        again = FakeCaller()
        worker = workers.start(caller=again)
        await worker.until(lambda: len(again.taken) == 200 - len(done), "the rest")
        assert not done & set(again.taken)
        await worker.kill()

    run(test)


def test_while_the_receiver_sleeps_little_is_held_in_memory() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER)
        for number in range(10_000):
            workers.source.add(f"k{number}", f"n{number}")
        workers.caller.answers = lambda _key, _id: Answer(503, retry_after_ms=3_600_000)
        worker = workers.start()
        await worker.until(lambda: worker.gate.is_shut, "the gate is shut")
        await pass_time(1)
        assert worker.open_counts < [1_500]
        await worker.kill()

    run(test)


def test_a_retry_topic_is_read_as_far_as_the_next_record_that_is_due_and_no_farther() -> None:
    async def test() -> None:
        retries = FakeTopic("T-g-retry-1")
        workers = Workers("policy = retry-topics", "retry-topics.intervals = [1h]", topics=(FakeTopic("T"), retries))
        for number in range(5_000):
            retries.add(f"k{number}", f"n{number}")
        moved = moved_headers((), Way(Origin(P, 1), 1), "n", 0, "HTTP 500", NOW)
        log = retries.records[Partition(retries.name, 0)]
        log[:] = [msgspec.structs.replace(each, headers=(*each.headers, *moved)) for each in log]
        worker = workers.start()
        await worker.until(lambda: sum(worker.open_counts), "it is read")
        await pass_time(0.5)
        assert sum(worker.open_counts) <= 500
        assert not workers.caller.calls
        await worker.kill()

    run(test)


def test_what_lies_in_a_retry_topic_is_called_when_its_time_has_come_and_not_later() -> None:
    async def test() -> None:
        retries = FakeTopic("T-g-retry-1")
        workers = Workers("policy = retry-topics", "retry-topics.intervals = [2s]", topics=(FakeTopic("T"), retries))
        retries.add("k", "n")
        moved = moved_headers((), Way(Origin(P, 1), 1), "n", 0, "HTTP 500", NOW)
        log = retries.records[Partition(retries.name, 0)]
        log[:] = [msgspec.structs.replace(each, headers=(*each.headers, *moved)) for each in log]
        since = running_loop().time()
        worker = workers.start()
        await worker.until(lambda: workers.caller.taken == ["n"], "the call")
        assert 2 <= workers.caller.calls[0][3] - since < 2.2
        await worker.stop()

    run(test)


def test_a_new_partition_without_orders_does_not_keep_the_others_from_theirs() -> None:
    async def test() -> None:
        workers = Workers(*FOR_EVER, "retry.first = 1h", "retry.most = 1h", topics=[FakeTopic("T", 2)])
        workers.orders.partitions = 1
        workers.source.add("k", "n")
        workers.caller.answers = lambda _key, _id: Answer(500)
        worker = workers.start()
        await worker.until(lambda: workers.caller.calls, "it is blocked")
        order = DirectOrder(id="o", order=DirectOrderKind.SKIP, by="me", because="why", at="2026-03-28T00:00:00Z", offset=0)
        workers.orders.given.append(encode(order))
        await worker.until(lambda: workers.source.letters == [("n", "skipped")], "the order is executed")
        await worker.stop()

    run(test)
