"""Several workers of one service on a real broker and a real Redis, as an operator runs them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.processes.operated_daemon import Daemon, has_ended
from harness.processes.operated_service import KAFKA_CLIENTS, NOTIFICATION, RESEQUENCER, OperatedService, kafka_overrides
from harness.waiting import wait_until

from notification_service.status.report import State
from notification_service.status.service_report import ServiceReport, find_reports, service_report
from notification_service.supervision.system_clock import SystemClock

if TYPE_CHECKING:
    from servers.kafka import KafkaServer
    from servers.redis import RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture
def workers_on(
    kafka: KafkaServer, redis_server: RedisServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Daemon]]:
    """Services with topics, a group and a namespace of the test's own."""
    made: list[Daemon] = []

    def make(*overrides: str, count: int, partitions: int) -> Daemon:
        name = fresh_name("workers")
        topics = [f"{name}-{each}" for each in ("in", "out", "dead")]
        kafka.create_topics(*topics, partitions=partitions)
        service = OperatedService(
            tmp_path,
            *kafka_overrides(kafka.bootstrap, *topics, group=name),
            f"{KAFKA_CLIENTS}.group.instance.id={name}",
            f"{NOTIFICATION}.worker.count={count}",
            f"{NOTIFICATION}.storage.namespace={name}",
            f'{NOTIFICATION}.storage.redis.url="{redis_server.url}"',
            f"{RESEQUENCER}.storage-type=redis",
            # Shorter, and a busy machine would not write all of a payment before its deadline: it would leave incomplete.
            f"{RESEQUENCER}.stash-timeout=20s",
            *overrides,
        )
        made.append(Daemon(service))
        return made[-1]

    yield make
    for daemon in made:
        daemon.service.verb("stop")
        daemon.service.clear_away()


def test_two_workers_share_the_partitions_and_whichever_is_killed_nothing_is_lost_doubled_or_misplaced(
    workers_on: Callable[..., Daemon],
) -> None:
    daemon = workers_on(count=2, partitions=4)
    daemon.start()
    _wait_until_shared(daemon)
    simulated = daemon.service.verb("simulate", "--units", "300", "--late", "0", "--losses", "1%", "--seed", "5")
    assert simulated.returncode == 0, simulated.stderr
    for slot in (0, 1):
        worker = _worker_in(daemon, slot)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda killed=worker, of=slot: daemon.find_worker(of) not in (None, killed), "another one begins")
        _wait_until_shared(daemon)
    verified = lambda: daemon.service.verb("verify")  # noqa: E731 - Asked again until it is so.
    wait_until(lambda: verified().returncode == 0, "every promise is held", look_seconds=1)
    assert [each.restarts for _, each in _report(daemon).workers] == [1, 1]
    assert daemon.service.verb("stop").returncode == 0
    log = daemon.log_file.read_text()
    assert "worker 0 was killed by SIGKILL" in log
    assert "resequencer.daemon: ready [slot=0]" in log
    assert "resequencer.daemon: drained [slot=1]" in log


def test_a_rolling_restart_under_load_loses_doubles_and_misplaces_nothing_though_one_is_killed_half_way(
    workers_on: Callable[..., Daemon],
) -> None:
    # Without it a worker that ends leaves the group, so that its partitions go to the other one and come back.
    daemon = workers_on(f"{KAFKA_CLIENTS}.group.instance.id=null", count=2, partitions=4)
    daemon.start()
    _wait_until_shared(daemon)
    before = [_worker_in(daemon, slot) for slot in (0, 1)]
    load = daemon.service.begin_verb(
        "simulate", "--units", "400", "--rate", "150/s", "--late", "0", "--losses", "0", "--seed", "5"
    )
    wait_until(lambda: _report(daemon).whole.counts.get("records", 0) > 100, "it is under load")
    printed = lambda: (daemon.service.directory / "restart.log").read_text().splitlines()  # noqa: E731 - Read again and again.
    killed = daemon.service.begin_verb("restart", "--rolling")
    wait_until(lambda: printed() or killed.poll() is not None, "the first worker is ordered to end")
    killed.kill()
    wait_until(
        lambda: [each.restarts for _, each in _report(daemon).workers] == [1, 0], "the supervisor restarts it all the same"
    )
    _wait_until_shared(daemon)
    restarting, states = daemon.service.begin_verb("restart", "--rolling"), set[tuple[str, ...]]()
    wait_until(
        lambda: states.add(tuple(state for state, _ in _report(daemon).workers)) or restarting.poll() is not None,
        "each worker is another one",
    )
    assert restarting.returncode == 0, printed()
    assert all(State.READY in each for each in states), states
    assert not set(before) & {_worker_in(daemon, slot) for slot in (0, 1)}
    assert [each.restart_causes for _, each in _report(daemon).workers] == [{"told": 2}, {"told": 1}]
    assert [line.partition(" after")[0] for line in printed()] == [
        "worker 0: ends, 1 of 2",
        *("worker 0: ends, 1 of 2", "worker 0: ready", "worker 1: ends, 2 of 2", "worker 1: ready"),
        "restarted 2 workers, one",
    ]
    assert load.wait(120) == 0
    verified = lambda: daemon.service.verb("verify")  # noqa: E731 - Asked again until it is so.
    wait_until(lambda: verified().returncode == 0, "every promise is held", look_seconds=1)
    assert "0 lost, 0 doubled" in verified().stdout


def test_a_worker_for_which_no_partition_is_left_stands_by_and_takes_over_when_another_one_hangs(
    workers_on: Callable[..., Daemon],
) -> None:
    stale = f"{NOTIFICATION}.worker.stale-after=3s"
    daemon = workers_on(f"{KAFKA_CLIENTS}.session.timeout.ms=6000", stale, count=2, partitions=1)
    daemon.start()
    wait_until(lambda: len(_holders(daemon)) == 1, "one holds it")
    (holder,) = _holders(daemon)
    standby = rf"worker {1 - holder} \(process [0-9]+\): ready, no partition is left for it; it is on standby"
    wait_until(lambda: re.search(standby, daemon.service.verb("status").stdout), "the other one stands by")
    hanging = _worker_in(daemon, holder)
    os.kill(hanging, signal.SIGSTOP)
    wait_until(lambda: _holders(daemon) == {1 - holder}, "the other one has taken over")
    wait_until(lambda: _report(daemon).state == "stale", "the worker that reports nothing is named")
    os.kill(hanging, signal.SIGCONT)
    wait_until(lambda: _report(daemon).state == State.READY, "both are ready")


def test_in_the_foreground_both_drain_on_one_signal(workers_on: Callable[..., Daemon]) -> None:
    daemon = workers_on(count=2, partitions=2)
    service = daemon.service.start(alone=False)
    wait_until(lambda: find_reports(service.run_directory), "they report")
    _wait_until_shared(daemon)
    assert service.stop() == 0
    assert "drained [slot=0]" in service.log
    assert "drained [slot=1]" in service.log


def test_workers_whose_supervisor_is_gone_end_and_a_start_waits_for_them(workers_on: Callable[..., Daemon]) -> None:
    daemon = workers_on(count=2, partitions=2)
    daemon.start()
    workers = [_worker_in(daemon, slot) for slot in (0, 1)]
    os.kill(daemon.supervisor, signal.SIGKILL)
    daemon.start()
    assert all(map(has_ended, workers))
    _wait_until_shared(daemon)


def _report(daemon: Daemon) -> ServiceReport:
    reports = find_reports(daemon.service.run_directory)
    assert reports
    return service_report(reports, SystemClock().now(), is_running=True)


def _wait_until_shared(daemon: Daemon) -> None:
    wait_until(lambda: _report(daemon).state == State.READY and _holders(daemon) == {0, 1}, "both are ready and hold some")


def _holders(daemon: Daemon) -> set[int]:
    return {each.slot for each in _report(daemon).whole.partitions}


def _worker_in(daemon: Daemon, slot: int) -> int:
    return wait_until(lambda: daemon.find_worker(slot), f"a worker in slot {slot}") or 0


DEADLY_TARGET = """
import json
import os
from contextlib import suppress
from pathlib import Path


def report(mapping):
    \"\"\"The first ACTC that comes ends whichever worker makes it.\"\"\"
    made = mapping["report"]
    identity = made["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"]
    if "ACTC" in json.dumps(made):
        with suppress(FileExistsError), Path("killer").open("x") as killer:
            killer.write(identity)
        if identity == Path("killer").read_text() and not Path("cured").exists():
            with Path("calls").open("a") as calls:
                calls.write("x")
            os._exit(3)
    return json.dumps(made).encode()
"""


def test_a_record_that_ends_whichever_worker_gets_it_is_set_aside_and_every_other_promise_is_held(
    workers_on: Callable[..., Daemon],
) -> None:
    settings = (f"{NOTIFICATION}.target-type=deadly_target:report", f"{RESEQUENCER}.stash-timeout=5m")  # Nothing is missing.
    daemon = workers_on(*settings, count=2, partitions=4)
    directory, verb = daemon.service.directory, daemon.service.verb
    (directory / "deadly_target.py").write_text(DEADLY_TARGET, encoding="utf-8")
    daemon.start()
    _wait_until_shared(daemon)
    simulated = verb("simulate", "--units", "200", "--seed", "7", *none_of("late", "losses", "duplicates"))
    assert simulated.returncode == 0, simulated.stderr
    wait_until(lambda: "ended-its-worker" in verb("dead-letters", "list").stdout, "it is set aside", look_seconds=1)
    assert (directory / "calls").stat().st_size == 3
    (directory / "cured").touch()
    _wait_until_shared(daemon)
    assert sum(each.restarts for _, each in _report(daemon).workers) == 3
    requeued = verb("dead-letters", "requeue", "--reason", "ended-its-worker")
    assert (requeued.returncode, requeued.stdout.count(": requeued, now at ")) == (0, 1), requeued
    as_a_report = ("--set", f"{NOTIFICATION}.target-type=report")
    judged = lambda: json.loads(verb("verify", "--json", *as_a_report).stdout)  # noqa: E731 - Asked again.
    wait_until(lambda: judged()["counts"]["lost"] == 0, "all have left", look_seconds=1)
    assert {what: count for what, count in judged()["counts"].items() if count} == {
        "dead letter unexpected": 1,
        "marked incomplete or late without a cause": 1,
    }, "what was requeued comes late, and its letter is not among what was expected"


def none_of(*kinds: str) -> list[str]:
    """Return arguments for `simulate` that switch these faults off."""
    return [word for kind in kinds for word in (f"--{kind}", "0")]
