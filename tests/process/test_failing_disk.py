"""Every file that the real process writes fails in every way: the process waits, reports the problem, and continues by itself."""

import json
import os
from collections.abc import Callable, Iterator
from errno import EIO, ENOSPC, errorcode
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from harness.disk.faulty_disk import Call, FaultyDisk
from harness.nightly import SEED, at_night
from harness.processes.operated_service import RESEQUENCER, OperatedService, envelope_line
from harness.waiting import wait_until

from notification_service.status.report import State

pytestmark = pytest.mark.slow


class Blow(NamedTuple):
    """Calls on a file that fail; a struck write leaves its first `torn` bytes."""

    name: str
    calls: Call
    error: int
    torn: int = 0

    def __str__(self) -> str:
        return f"{self.name}-{self.calls.name}-{errorcode[self.error]}"


OUTPUT = [
    Blow("out/notifications.jsonl", Call.WRITE, ENOSPC, 300),
    Blow("out/notifications.jsonl", Call.WRITE, EIO),
    Blow("out/notifications.jsonl", Call.SYNC, EIO),
    Blow("out/notifications.jsonl", Call.SYNC | Call.TRUNCATE, EIO),
    Blow("out/dead-letters.jsonl", Call.WRITE, ENOSPC, 300),
    Blow("out/dead-letters.jsonl", Call.SYNC, EIO),
    Blow("out/positions.json.tmp", Call.OPEN, ENOSPC),
    Blow("out/positions.json.tmp", Call.WRITE, ENOSPC, 30),
    Blow("out/positions.json.tmp", Call.SYNC, EIO),
    Blow("out/positions.json", Call.RENAME, EIO),
]
STORAGE = [
    Blow("state.db-log-1", Call.WRITE, ENOSPC, 300),
    Blow("state.db-log-1", Call.WRITE, EIO),
    Blow("state.db-log-1", Call.SYNC, EIO),
    Blow("state.db-wal", Call.WRITE, ENOSPC, 300),
    Blow("state.db-wal", Call.SYNC, EIO),
]
SOURCE = [Blow("in/partition-0.jsonl", Call.READ, EIO)]


class Struck(NamedTuple):
    """A service that runs on a faulty disk."""

    service: OperatedService
    disk: FaultyDisk

    def strike(self, blow: Blow, state: State) -> str:
        """Send records while the disk fails, check that their output leaves afterwards, and return the reason in the report."""
        before, logged = self.service.input_lines // 2, self._said(state)
        fault = self.disk.fail(blow.name, blow.calls, blow.error, torn=blow.torn)
        self.service.append(envelope_line(f"uow-{before}", 1), b"not a record %d" % before)
        report = self.service.wait_for_report(lambda report: report.state is state and fault.struck > 1, state)
        fault.lift()
        self.service.wait_for_report(
            lambda report: report.state is State.READY and report.counts.get("records") == self.service.input_lines, "it goes on"
        )
        assert len(self.service.notifications()) == len(self.service.dead_letters()) == before + 1
        assert self._said(state) == [each + 1 for each in logged], "once when it goes, once when it is back"
        return str(report.reason)

    def _said(self, state: State) -> list[int]:
        what = state.removesuffix(" unavailable")
        return [self.service.log.count(text) for text in (f"the {what} is unavailable, ", f"the {what} answers again")]


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    """One service that gets all the blows, one after the other; at the end all output has left once and in order."""
    directory = tmp_path_factory.mktemp("struck")
    disk = FaultyDisk.make(directory / "faults")
    service = OperatedService(directory, environment=disk.environment)
    try:
        yield Struck(service.start_and_wait(), disk)
        assert service.stop() == 0
        notifications, dead = service.notifications(), service.dead_letters()
        assert [each["key"] for each in notifications] == [f"uow-{number}" for number in range(service.input_lines // 2)]
        assert [each["value"] for each in dead] == [f"not a record {number}" for number in range(service.input_lines // 2)]
        assert not any("possible-duplicate" in each["headers"] for each in (*notifications, *dead))
    finally:
        service.clear_away()


@pytest.mark.parametrize("blow", [OUTPUT[0], OUTPUT[2], *at_night("processes", OUTPUT[1], *OUTPUT[3:])], ids=str)
def test_an_output_that_fails_is_away_until_it_does_not(struck: Struck, blow: Blow) -> None:
    reason = struck.strike(blow, State.OUTPUT_UNAVAILABLE)
    assert f"{blow.name}: {errorcode[blow.error]}: " in reason or blow.calls is Call.RENAME


@pytest.mark.parametrize("blow", [STORAGE[0], *at_night("processes", *STORAGE[1:])], ids=str)
def test_a_storage_that_fails_is_away_until_it_does_not(struck: Struck, blow: Blow) -> None:
    reason = struck.strike(blow, State.STORAGE_UNAVAILABLE)
    assert reason.startswith(("run/application/state.db: ", "run/application/state.db-log-1: "))


@pytest.mark.parametrize("blow", SOURCE, ids=str)
def test_an_input_that_fails_is_away_until_it_does_not(struck: Struck, blow: Blow) -> None:
    assert "in/partition-0.jsonl: EIO: " in struck.strike(blow, State.SOURCE_UNAVAILABLE)


def test_what_it_says_of_itself_may_fail_without_it(struck: Struck) -> None:
    """The service does not wait for its status file."""
    service, before = struck.service, struck.service.input_lines // 2
    fault = struck.disk.fail("application/status.json.new", Call.OPEN | Call.WRITE, ENOSPC)
    in_place = struck.disk.fail("application/status.json", Call.WRITE, EIO)
    wait_until(lambda: fault.struck and in_place.struck, "a report that cannot be written")
    service.append(envelope_line(f"uow-{before}", 1), b"not a record %d" % before)
    wait_until(lambda: len(service.dead_letters()) == before + 1, "it goes on")
    fault.lift()
    in_place.lift()
    service.wait_for_report(lambda report: report.counts.get("records") == service.input_lines, "it says so again")
    assert "so `status` shows old values" in service.log


@pytest.mark.nightly("processes")
def test_kills_at_any_call_and_failures_in_between_lose_double_and_misplace_nothing(
    new_service: Callable[..., OperatedService], tmp_path: Path
) -> None:
    disk = FaultyDisk.make(tmp_path / "faults")
    service = new_service(f"{RESEQUENCER}.stash-timeout=2s", environment=disk.environment)
    rounds, chance = int(os.environ.get("KILLS", "10")), Random(SEED)
    rates = ("--duplicates", "5%", "--losses", "1%", "--late", "0", "--garbage", "2%")
    failures = exits = 0
    for number in range(rounds):
        simulated = service.verb("simulate", "--units", "60", "--seed", str(number), "--partitions", "2", *rates)
        assert simulated.returncode == 0, simulated.stderr
        service.start("ipf.processing-data.ingress.batch-size=10")
        blow = chance.choice(OUTPUT + STORAGE)
        fault = disk.fail(blow.name, blow.calls, blow.error, torn=blow.torn, skip=chance.randrange(8))
        failures += _has_come(service, lambda fault=fault: fault.struck > 1)  # type: ignore[misc]
        fault.lift()
        killing = disk.kill(blow.name, blow.calls, torn=chance.randrange(400), skip=chance.randrange(20))
        exits += _has_come(service, service.has_died)
        killing.lift()
        service.kill()
    assert min(failures, exits) > rounds // 3, "or hardly anything was tried"
    service.start()
    service.wait_until_idle()
    assert service.stop() == 0
    verified = service.verb("verify", "--json")
    assert verified.returncode == 0, verified.stdout
    assert not any(json.loads(verified.stdout)["counts"].values())
    assert "possible-duplicate" not in (service.out_directory / "notifications.jsonl").read_text(encoding="utf-8")


def _has_come(service: OperatedService, question: Callable[[], bool]) -> bool:
    """Return whether the answer becomes true before nothing is left to do: the struck call may not happen any more."""
    wait_until(lambda: question() or service.is_idle(), "it has come, or nothing is left to do")
    return question()
