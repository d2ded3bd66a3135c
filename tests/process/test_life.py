"""The real process: start on an empty directory, stop, kill, start again."""

import json
import os
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from harness.nightly import SEED, at_night
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import DEADLINE_SECONDS, pause_until, wait_until

from notification_service.status.report import UnitWait

pytestmark = pytest.mark.slow

NEVER = f"{RESEQUENCER}.stash-timeout=10m"
SOON = f"{RESEQUENCER}.stash-timeout=1s"

FAILING_TARGET = '''
import json
import time
from zlib import crc32

from resequencer.errors import TransientError


def report(mapping):
    """Every tenth notification cannot be made in a quarter of the time."""
    made = mapping["report"]
    name = made["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"]
    if crc32(name.encode()) % 10 == 0 and time.time() % 2 < 0.5:
        raise TransientError("the target rests")
    return json.dumps(made).encode()
'''


def test_lines_appended_by_hand_out_of_order_are_notified_in_order(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 4)
    service.tell("uow-1", 2, 1)
    service.wait_for("uow-1", 1, 2)
    service.tell("uow-1", 3)
    service.wait_for("uow-1", 1, 2, 3, 4)
    assert service.stop() == 0


def test_a_line_is_not_read_before_its_end_is_written(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1)
    whole = (service.in_directory / "partition-0.jsonl").read_bytes().replace(b"uow-1", b"uow-2")
    with (service.in_directory / "partition-0.jsonl").open("ab", buffering=0) as file:
        file.write(whole[:50])
        service.wait_for("uow-1", 1)
        read_to = service.wait_for_report(lambda report: report.counts.get("records") == 1, "one record").partitions[0].read_to
        assert read_to == len(whole)
        file.write(whole[50:])
    service.wait_for("uow-2", 1)
    assert service.dead_letters() == []


def test_after_a_stop_nothing_is_told_twice_and_what_waits_still_waits(service: OperatedService) -> None:
    service.start_and_wait(NEVER)
    service.tell("uow-1", 2, 1, 1)
    service.tell("uow-2", 3)
    service.wait_for("uow-1", 1, 2)
    before = _wait_of(service)
    assert service.stop() == 0
    service.start_and_wait(NEVER)
    after = _wait_of(service)
    assert (after.unit, after.waits_for, after.since, after.until) == ("uow-2", before.waits_for, before.since, before.until)
    service.tell("uow-2", 1, 2)
    service.wait_for("uow-2", 1, 2, 3)
    assert service.stop() == 0
    assert service.sequences("uow-1") == [1, 2]


def test_a_deadline_stands_where_it_stood_before_a_restart(service: OperatedService) -> None:
    timeout = f"{RESEQUENCER}.stash-timeout=8s"
    service.start_and_wait(timeout)
    service.tell("uow-1", 2)
    until = _wait_of(service).until
    assert service.stop() == 0
    service.start(timeout)
    report = service.wait_for_report(lambda report: report.oldest_waits or report.counts.get("incomplete") == 1, "it goes on")
    # On a busy machine it may have passed before the service is there again.
    assert [each.until for each in report.oldest_waits] in ([until], [])
    service.wait_for("uow-1", 2)
    (notification,) = service.notifications()
    assert notification["headers"]["incomplete"] == "sequence:1"
    released = datetime.fromisoformat(notification["value"]["CstmrPmtStsRpt"]["GrpHdr"]["CreDtTm"])
    service.wait_for_report(lambda report: report.counts.get("incomplete") == 1, "it is counted")
    assert datetime.fromisoformat(until) <= released
    assert service.stop() == 0


def test_an_interrupt_from_the_keyboard_drains_too(service: OperatedService) -> None:
    service.start_and_wait()
    service.signal(signal.SIGINT)
    assert service.wait() == 0
    assert service.log.rstrip().endswith("drained")


def test_a_stop_while_it_starts_is_a_stop(service: OperatedService) -> None:
    service.start()
    wait_until(lambda: (service.run_directory / "lock").exists(), "the lock")
    assert service.stop() == 0


def test_a_second_signal_ends_it_at_once(service: OperatedService) -> None:
    (service.directory / "sleeping_target.py").write_text(
        "import pathlib, time\ndef report(mapping):\n    pathlib.Path('called').touch()\n    time.sleep(600)\n", encoding="utf-8"
    )
    service.start_and_wait(f"{NOTIFICATION}.target-type=sleeping_target:report")
    service.tell("uow-1", 1)
    wait_until(lambda: (service.directory / "called").exists(), "the target is called")
    service.signal(signal.SIGTERM)
    # Two signals that the process has not handled yet are one, so the second is sent until it is handled.
    wait_until(service.has_ended_after(signal.SIGTERM), "its end")
    assert service.wait() == 128 + signal.SIGTERM
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    assert service.stop() == 0


@pytest.mark.parametrize("storage", ["embedded", *at_night("processes", "none")])
def test_a_stop_under_load_loses_and_doubles_nothing(new_service: Callable[..., OperatedService], storage: str) -> None:
    service = new_service(f"{RESEQUENCER}.storage-type={storage}", SOON, "ipf.processing-data.ingress.batch-size=100")
    simulation = ("simulate", "--units", "400", "--seed", "11", "--late-after", "0", "--losses", "0", "--late", "0")
    assert service.verb(*simulation).returncode == 0
    service.start()
    wait_until(lambda: service.output_bytes > 200_000, "it is in the middle of it")
    assert service.stop() == 0
    between = len(service.notifications())
    service.start()
    service.wait_until_idle()
    assert service.stop() == 0
    assert 0 < between < len(service.notifications())
    verdict = json.loads(service.verb("verify", "--json").stdout)
    assert verdict["counts"]["lost"] == 0
    # With none, unhandled records are read again by units without memory: at least once, and not more often than that.
    assert verdict["good"] or storage == "none", verdict


def test_kills_at_random_moments_and_at_the_worst_ones_lose_double_and_misplace_nothing(
    new_service: Callable[..., OperatedService],
) -> None:
    service = new_service(
        SOON,
        f"{NOTIFICATION}.target-type=failing_target:report",
        f"{RESEQUENCER}.processing-timeout=200ms",
        f"{RESEQUENCER}.max-attempts=9",
        "ipf.processing-data.ingress.batch-size=50",
        "ipf.processing-data.ingress.file.archive-every=1s",
        f"{NOTIFICATION}.file.rotate-at=1M",
    )
    (service.directory / "failing_target.py").write_text(FAILING_TARGET, encoding="utf-8")
    rates = ("--duplicates", "5%", "--losses", "1%", "--late", "1%", "--garbage", "1%", "--late-after", "1")
    kills = int(os.environ.get("KILLS", "6"))
    units = str(45 * kills)
    simulation = service.begin_verb("simulate", "--units", units, "--seed", "5", "--partitions", "2", *rates)
    wait_until(lambda: "late envelopes follow" in (service.directory / "simulate.log").read_text(), "all but the late ones")
    simulation.send_signal(signal.SIGSTOP)
    chance = Random(SEED)
    _run_and_kill(service, chance, kills - kills // 3)
    service.start()
    service.wait_until_idle()
    service.kill()
    simulation.send_signal(signal.SIGCONT)
    assert simulation.wait(DEADLINE_SECONDS) == 0
    _run_and_kill(service, chance, kills // 3)
    service.start()
    service.wait_until_idle()
    archive = service.run_directory / "archive"
    # The archiving process has a low priority: beside a busy machine's other processes it is slow.
    wait_until(lambda: kills < 6 or any(archive.glob("*.gz")), "processed input is archived", 400)
    assert service.stop() == 0
    verified = service.verb("verify", "--json", "--set", f"{NOTIFICATION}.target-type=report")
    assert verified.returncode == 0, verified.stdout
    verdict = json.loads(verified.stdout)
    assert verdict["good"]
    assert not any(verdict["counts"].values())
    assert min(verdict["incomplete"], verdict["late"], verdict["dead_letters"]) > 0, "deadlines, late ones and garbage"
    for each in service.out_directory.glob("notifications.*jsonl"):
        assert "possible-duplicate" not in each.read_text(encoding="utf-8")


def _wait_of(service: OperatedService) -> UnitWait:
    report = service.wait_for_report(lambda report: len(report.oldest_waits) == 1, "one unit waits")
    return report.oldest_waits[0]


def _run_and_kill(service: OperatedService, chance: Random, times: int) -> None:
    aims = (None, "out/notifications.jsonl", "state.db-log-1", "out/notifications.000001.jsonl")
    for number in range(times):
        service.start()
        _reach_a_random_moment(service, chance, aims[number % len(aims)])
        service.kill()


def _reach_a_random_moment(service: OperatedService, chance: Random, aim: str | None) -> None:
    """Wait for a random amount of output or a random time; then return when the watched file changes.

    Between a commit and its output, and between the output and its position, there are only milliseconds.
    """
    target = service.output_bytes + chance.randrange(200_000)
    pause_until(lambda: service.output_bytes >= target, chance.random() * 1.5)
    if aim is not None:
        before = _stamp(service.run_directory / aim)
        pause_until(lambda: _stamp(service.run_directory / aim) != before, 1, look_seconds=0)


def _stamp(file: Path) -> tuple[int, int] | None:
    return (file.stat().st_size, file.stat().st_mtime_ns) if file.exists() else None
