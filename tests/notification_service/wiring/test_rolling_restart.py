"""A rolling restart: one worker after another, the next one only when all are ready, and nothing that needs more is tried."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from sys import executable

import msgspec
import pytest

from notification_service.command_line import parse
from notification_service.commands.command import repeated_arguments
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import SCHEMA
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, PartitionStatus, State, StatusReport, UntakenPartition, report
from notification_service.status.service_report import NOT_RUNNING, service_report
from notification_service.supervision.locks import RunLock, RunningService
from notification_service.supervision.started import MAY_DIFFER, Started, started_file
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring import rolling_restart
from notification_service.wiring.rolling_restart import Rolling, RollingRefused, restart_rolling

NOW = 1_774_740_835_941


class Service:
    """Workers by slot, and what the next looks find: each `pause` takes a second, and then the next of `events` happens."""

    def __init__(self, count: int, *events: Callable[[Service], object]) -> None:
        self.workers = [self._new(slot, 100 + slot, count) for slot in range(count)]
        self.ended: list[int] = []
        self.lines: list[str] = []
        self.holder: str | None = "1"
        self._events = list(events)
        self._seconds = 0.0

    def restart(self) -> None:
        Rolling(self._look, self._end, self.lines.append, lambda: self._seconds, self._pause).restart(len(self.workers))

    def change(self, slot: int, **fields: object) -> None:
        self.workers[slot] = msgspec.structs.replace(self.workers[slot], **fields)

    def _look(self) -> RunningService:
        found = service_report(self.workers, NOW, is_running=self.holder is not None)
        return RunningService(found.state, found if self.holder else None, self.holder)

    def _end(self, slot: int) -> bool:
        assert all(each.state is State.READY for each in self.workers), "no worker may end while another is not ready"
        self.ended.append(slot)
        ended = self.workers[slot].restarts + 1
        self.change(slot, state=State.STARTING, worker_process_id=None, partitions=(), restarts=ended)
        return True

    def _pause(self) -> None:
        self._seconds += 1
        if self._events:
            self._events.pop(0)(self)
        elif (starting := [each for each in self.workers if each.state is State.STARTING]) and self._events is not None:
            slot = starting[0].slot
            self.change(slot, **_ready(slot, 200 + slot))

    @staticmethod
    def _new(slot: int, process: int, count: int) -> StatusReport:
        identity = Identity(1, "local.conf", NOW, slot=slot, worker_count=count, worker_process_id=process)
        return msgspec.structs.replace(report(identity, State.READY, None, NOW), **_ready(slot, process))


def _ready(slot: int, process: int) -> dict[str, object]:
    partition = PartitionStatus(f"T-{slot}", 10, 10, 0, None, slot)
    return {"state": State.READY, "reason": None, "worker_process_id": process, "partitions": (partition,)}


def waits(service: Service) -> None:
    """Nothing happens in this second."""


def test_one_worker_ends_after_another_and_what_is_done_is_said() -> None:
    service = Service(3)
    service.restart()
    assert service.ended == [0, 1, 2]
    assert [each.worker_process_id for each in service.workers] == [200, 201, 202]
    assert service.lines[:3] == ["worker 0: ends, 1 of 3", "worker 0: ready after 3 s, 1 partition", "worker 1: ends, 2 of 3"]


def test_the_next_one_waits_until_the_group_has_handed_all_partitions_over() -> None:
    late = UntakenPartition("T-1", "storage", "no answer", "2026-03-28T23:34:16.000Z", 1)
    service = Service(
        2,
        lambda each: each.change(0, **_ready(0, 200)),
        lambda each: each.change(1, untaken=(late,)),
        *([waits] * 30),
        lambda each: each.change(1, untaken=()),
    )
    service.restart()
    assert service.lines[1] == "worker 0: ready after 35 s, 1 partition"


def test_a_worker_that_gets_no_partition_is_waited_for_longer_and_then_stands_by() -> None:
    service = Service(2, lambda each: each.change(0, **{**_ready(0, 200), "partitions": ()}), *([waits] * 9))
    service.restart()
    assert service.lines[1] == "worker 0: ready after 11 s, 0 partitions"


def test_a_worker_that_is_not_ready_in_time_stops_the_rest() -> None:
    service = Service(3, lambda each: each.change(0, **_ready(0, 200)), *([waits] * 2), *([waits] * 200))
    with pytest.raises(RollingRefused) as refused:
        service.restart()
    assert service.ended == [0, 1]
    assert str(refused.value).startswith("worker 1 has not started again. The rolling restart stops here: 1 of 3 workers were")


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (
            lambda each: each.change(0, restarts=2, last_exit="ended with 1 at noon"),
            "worker 0 ended again: it ended with 1 at noon",
        ),
        (lambda each: setattr(each, "holder", None), "the service has ended"),
        (lambda each: setattr(each, "holder", "2"), "the service has ended"),
    ],
)
def test_what_waiting_cannot_help_stops_at_once(event: Callable[[Service], object], why: str) -> None:
    service = Service(2, event, lambda _: pytest.fail("it was waited for"))
    with pytest.raises(RollingRefused, match=why):
        service.restart()
    assert service.ended == [0]


def test_it_does_not_begin_while_a_worker_is_not_ready() -> None:
    service = Service(2)
    service.change(1, state=State.HEALING, reason="records are read again")
    with pytest.raises(RollingRefused, match="worker 1 is healing: records are read again: a rolling restart begins when all"):
        service.restart()
    assert service.ended == []


# What is refused


NOTIFICATION = "payment-status-notification"


@pytest.fixture
def at_two_workers(loaded: Callable[[str], Configuration], tmp_path: Path) -> Callable[..., Configuration]:
    """A maker of configurations with this run directory."""

    def make(text: str = "", count: int = 2) -> Configuration:
        return loaded(
            f'{NOTIFICATION} {{ run-directory = "{tmp_path}", worker.count = {count} }}\n'
            f"ipf.processing-data.ingress.transport = kafka\n{NOTIFICATION}.transport = kafka\n"
            f"{NOTIFICATION} {{ resequencer.storage-type = redis, storage.redis.password = old }}\n{text}"
        )

    return make


@pytest.fixture
def running(at_two_workers: Callable[..., Configuration], tmp_path: Path) -> Iterator[None]:
    """This process has the run directory, as a service that was started with two workers would."""
    lock = RunLock(tmp_path)
    lock.acquire()
    started_file(tmp_path).write(Started.with_these(at_two_workers()))
    now = SystemClock().now()
    for slot in (0, 1):
        identity = Identity(os.getpid(), "local.conf", now, slot=slot, worker_count=2, worker_process_id=1)
        StatusFile(tmp_path, slot).write(report(identity, State.READY, None, now))
    yield
    lock.release()


def refusal(configuration: Configuration, *options: str) -> str:
    arguments = parse(["restart", "--rolling", "--config", str(configuration.file), *options])
    with pytest.raises(RollingRefused) as refused:
        restart_rolling(configuration, repeated_arguments(arguments))
    return str(refused.value)


def test_without_a_service_there_is_nothing_to_restart(at_two_workers: Callable[..., Configuration]) -> None:
    assert refusal(at_two_workers()) == f"the service is {NOT_RUNNING}: start it"


@pytest.mark.usefixtures("running")
def test_a_key_that_all_workers_must_share_is_named_with_both_values(at_two_workers: Callable[..., Configuration]) -> None:
    found = refusal(at_two_workers(f"{NOTIFICATION}.resequencer.strategy = SEQUENCE", count=3))
    assert f'{NOTIFICATION}.resequencer.strategy is "SEQUENCE", and the service was started with "FULL_PAIN001"' in found
    assert f"{NOTIFICATION}.worker.count is 3, and the service was started with 2" in found
    assert found.endswith("`resequencer restart` restarts all workers at once")


@pytest.mark.usefixtures("running")
def test_what_each_worker_may_have_by_itself_is_taken(
    at_two_workers: Callable[..., Configuration], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rolling_restart.Rolling, "restart", lambda self, count: None)
    monkeypatch.setattr(rolling_restart, "_has_options_of", lambda service, options: True)
    changed = at_two_workers(f"{NOTIFICATION} {{ resequencer.retention = 9h, storage.redis.password = new }}")
    assert restart_rolling(changed, []) == 0
    assert "restarted 2 workers, one after another" in capsys.readouterr().out


@pytest.mark.usefixtures("running")
def test_another_program_is_refused(at_two_workers: Callable[..., Configuration], tmp_path: Path) -> None:
    same = started_file(tmp_path).find(os.getpid())
    assert same is not None
    started_file(tmp_path).write(msgspec.structs.replace(same, program="older"))
    assert refusal(at_two_workers()).startswith("the program was replaced since the service was started")
    (tmp_path / "started.json").unlink()
    assert refusal(at_two_workers()).startswith("the program was replaced since the service was started")


@pytest.mark.usefixtures("running")
def test_one_worker_is_refused(at_two_workers: Callable[..., Configuration], tmp_path: Path) -> None:
    started_file(tmp_path).write(Started.with_these(at_two_workers(count=1)))
    assert refusal(at_two_workers(count=1)).startswith("the service has one worker")


@pytest.mark.usefixtures("running")
def test_two_at_once_are_refused(at_two_workers: Callable[..., Configuration], tmp_path: Path) -> None:
    other = RunLock(tmp_path, "rolling")
    other.acquire()
    assert refusal(at_two_workers()) == f"another rolling restart is under way, process {os.getpid()}"
    other.release()


@pytest.mark.usefixtures("running")
def test_new_workers_get_the_options_of_the_start_so_others_are_refused(
    at_two_workers: Callable[..., Configuration], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = at_two_workers()
    options = ["run", "--config", configuration.file.name, "--set", "a=1", "--slot", "0"]
    worker = Popen([executable, "-c", "input()", *options], stdin=-1, cwd=configuration.file.parent)
    try:
        first = StatusFile(tmp_path).find()
        assert first is not None
        StatusFile(tmp_path).write(msgspec.structs.replace(first, worker_process_id=worker.pid))
        assert "was started with another --config or --set" in refusal(configuration, "--set", "a=2")
        restarted: list[int] = []
        monkeypatch.setattr(rolling_restart.Rolling, "restart", lambda self, count: restarted.append(count))
        arguments = parse(["restart", "--rolling", "--config", str(configuration.file), "--set", "a=1"])
        assert restart_rolling(configuration, repeated_arguments(arguments)) == 0
        assert restarted == [2]
    finally:
        worker.kill()
        worker.communicate()


def test_what_may_differ_are_keys() -> None:
    assert set(SCHEMA.keys) >= MAY_DIFFER


def test_no_secret_is_in_the_file(at_two_workers: Callable[..., Configuration], tmp_path: Path) -> None:
    started_file(tmp_path).write(Started.with_these(at_two_workers(f"{NOTIFICATION}.storage.redis.password = hidden-one")))
    written = (tmp_path / "started.json").read_text()
    assert "hidden-one" not in written
    assert len(json.loads(written)["values"]) > 200
