"""Dead letters of a running service: listed, requeued once, and handled in order with new envelopes."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService, envelope_line
from harness.waiting import wait_until

from notification_service.connectors.line_format import Line, decode_line, encode_line

pytestmark = pytest.mark.slow

TARGET = """
from pathlib import Path

from resequencer.errors import PermanentError


def target(produced):
    report = produced["report"]["CstmrPmtStsRpt"]
    poison = "ACTC" in str(report) or Path("all-poison").exists()
    if poison and not Path("cured").exists():
        raise PermanentError("the sheet for ACTC is missing")
    return str(report["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]["TxSts"]).encode()
"""
"""Event 2, PaymentValidated, leads to ACTC: it fails until the file `cured` exists. With `all-poison` every event fails."""

LETTER = "IPF_PROCESSING_DATA-0#"


@pytest.fixture
def poisoned(new_service: Callable[..., OperatedService], tmp_path: Path) -> OperatedService:
    (tmp_path / "sheets.py").write_text(TARGET, encoding="utf-8")
    text = f"{NOTIFICATION} {{ transport = file, target-type = 'sheets:target' }}\n".replace("'", '"')
    text += "ipf.processing-data.ingress.transport = file\n"
    text += f"{NOTIFICATION}.resequencer {{ storage-type = embedded, strategy = SEQUENCE }}\n"
    (tmp_path / "own.conf").write_text(text, encoding="utf-8")
    return new_service(config="own.conf")


def order(service: OperatedService, *arguments: str) -> subprocess.CompletedProcess[str]:
    return service.verb("dead-letters", *arguments)


def cure(service: OperatedService) -> None:
    (service.directory / "cured").touch()


def wait_for_letters(service: OperatedService, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(service.dead_letters()) >= count, f"{count} dead letters; log: {service.log}")
    assert len(service.dead_letters()) == count
    return service.dead_letters()


def late(service: OperatedService, unit: str) -> list[bool]:
    return ["late" in each["headers"] for each in service.notifications() if each["key"] == unit]


def test_a_poison_envelope_is_requeued_when_its_cause_is_gone_and_notified_of_once(poisoned: OperatedService) -> None:
    poisoned.start_and_wait()
    poisoned.tell("uow-1", 1, 2)
    (letter,) = wait_for_letters(poisoned, 1)
    listed = order(poisoned, "list")
    assert listed.returncode == 0
    assert f"{letter['number']}  new  handler-failed  uow-1  IPF_PROCESSING_DATA-0@" in listed.stdout
    cure(poisoned)
    done = order(poisoned, "requeue", letter["number"])
    assert (done.returncode, done.stderr.count("1 requeued, 0 not")) == (0, 1), done
    poisoned.wait_for("uow-1", 1, 2)
    poisoned.tell("uow-1", 3)
    poisoned.wait_for("uow-1", 1, 2, 3)
    assert late(poisoned, "uow-1") == [False, False, False]
    assert order(poisoned, "requeue", letter["number"]).returncode == 1
    poisoned.tell("uow-1", 4)
    poisoned.wait_for("uow-1", 1, 2, 3, 4)
    assert poisoned.stop() == 0
    assert len(poisoned.dead_letters()) == 1


def test_what_came_meanwhile_was_not_kept_waiting_and_the_requeued_one_says_that_it_is_late(poisoned: OperatedService) -> None:
    poisoned.start_and_wait()
    poisoned.tell("uow-1", 1, 2, 3)
    poisoned.wait_for("uow-1", 1, 3)
    (letter,) = wait_for_letters(poisoned, 1)
    poisoned.tell("uow-1", 5)
    cure(poisoned)
    assert order(poisoned, "requeue", "--reason", "handler-failed").returncode == 0
    poisoned.wait_for("uow-1", 1, 3, 2)
    poisoned.tell("uow-1", 4)
    poisoned.wait_for("uow-1", 1, 3, 2, 4, 5)
    assert late(poisoned, "uow-1") == [False, False, True, False, False]
    assert poisoned.stop() == 0
    assert letter["number"] == wait_for_letters(poisoned, 1)[0]["number"]


def test_if_everything_of_a_unit_was_poison_nothing_of_it_is_late_when_all_of_it_is_requeued(poisoned: OperatedService) -> None:
    (poisoned.directory / "all-poison").touch()
    poisoned.start_and_wait()
    poisoned.tell("uow-1", 1, 2, 3)
    wait_for_letters(poisoned, 3)
    cure(poisoned)
    assert order(poisoned, "requeue", "--all").returncode == 0
    poisoned.wait_for("uow-1", 1, 2, 3)
    assert late(poisoned, "uow-1") == [False, False, False]
    assert poisoned.stop() == 0


def test_what_is_still_poison_is_a_dead_letter_of_its_own_that_can_be_requeued_in_its_turn(poisoned: OperatedService) -> None:
    poisoned.start_and_wait()
    poisoned.tell("uow-1", 1, 2)
    first = wait_for_letters(poisoned, 1)[0]["number"]
    assert order(poisoned, "requeue", first).returncode == 0
    second = wait_for_letters(poisoned, 2)[1]
    assert second["number"] != first
    assert second["headers"]["requeued-from"] == first
    cure(poisoned)
    assert order(poisoned, "requeue", "--all").stdout.startswith(f"{second['number']}: requeued")
    poisoned.wait_for("uow-1", 1, 2)
    assert order(poisoned, "requeue", "--all").stdout == ""
    assert poisoned.stop() == 0


def test_a_stopped_service_takes_up_what_was_requeued_when_it_starts(poisoned: OperatedService) -> None:
    poisoned.start_and_wait()
    poisoned.tell("uow-1", 1, 2)
    poisoned.tell("uow-2", 1, 2)
    letters = wait_for_letters(poisoned, 2)
    assert poisoned.stop() == 0
    assert order(poisoned, "discard", letters[1]["number"], "--because", "settled by phone").returncode == 0
    assert order(poisoned, "requeue", "--all").returncode == 0
    cure(poisoned)
    poisoned.start()
    poisoned.wait_for("uow-1", 1, 2)
    assert poisoned.stop() == 0
    assert poisoned.sequences("uow-2") == [1]


def append_without_end(service: OperatedService, unit: str, sequence: int) -> bytes:
    """Append an envelope whose last byte is missing; return its whole value."""
    read = decode_line(envelope_line(unit, sequence))
    assert isinstance(read, Line)
    service.append(encode_line(Line(read.value[:-1], read.key, read.headers))[:-1])
    return read.value


def test_a_record_that_cannot_be_read_is_edited_into_a_good_one_and_notified_of_once(poisoned: OperatedService) -> None:
    cure(poisoned)
    poisoned.start_and_wait(f"{NOTIFICATION}.resequencer.stash-timeout = 10m")
    poisoned.tell("uow-1", 1)
    whole = append_without_end(poisoned, "uow-1", 2).decode()
    poisoned.tell("uow-1", 3)
    (letter,) = wait_for_letters(poisoned, 1)
    number = letter["number"]
    value = poisoned.directory / "value.json"
    value.write_text(order(poisoned, "show", number, "--raw").stdout, encoding="utf-8")
    edit = ("edit", number, "--value", str(value), "--because", "the end was missing")
    value.write_text(whole[:-2], encoding="utf-8")
    wrong = order(poisoned, *edit)
    assert (wrong.returncode, "it would be a dead letter again, undecodable" in wrong.stdout) == (1, True), wrong
    value.write_text(whole, encoding="utf-8")
    done = order(poisoned, *edit)
    assert (done.returncode, done.stderr.count("1 edited, 0 not")) == (0, 1), done
    poisoned.wait_for("uow-1", 1, 2, 3)
    assert late(poisoned, "uow-1") == [False, False, False]
    assert order(poisoned, *edit).returncode == 1
    assert f"{number}  edited  undecodable  uow-1" in order(poisoned, "list").stdout
    poisoned.tell("uow-1", 4)
    poisoned.wait_for("uow-1", 1, 2, 3, 4)
    assert poisoned.stop() == 0
    assert poisoned.dead_letters() == [letter]


@pytest.mark.nightly("processes")
def test_an_edit_that_is_killed_at_any_moment_and_made_again_is_sent_once(poisoned: OperatedService) -> None:
    cure(poisoned)
    poisoned.start_and_wait()
    units = [f"uow-{number}" for number in range(4)]
    values = {unit: append_without_end(poisoned, unit, 1) for unit in units}
    letters = {each["key"]: each["number"] for each in wait_for_letters(poisoned, len(units))}
    source = poisoned.in_directory / "partition-0.jsonl"
    actions = poisoned.out_directory / "dead-letters-actions.jsonl"
    moments: list[Callable[[], bool]] = [
        lambda: True,
        lambda: actions.exists() and b'"action":"editing","number":"%b"' % letters["uow-1"].encode() in actions.read_bytes(),
        lambda: b'"requeued-from":"%b"' % letters["uow-2"].encode() in source.read_bytes(),
        lambda: actions.exists() and b'"action":"edited","number":"%b"' % letters["uow-3"].encode() in actions.read_bytes(),
    ]
    for unit, is_time in zip(units, moments, strict=True):
        value = poisoned.directory / f"{unit}.json"
        value.write_bytes(values[unit])
        edit = ("dead-letters", "edit", letters[unit], "--value", str(value), "--because", "the end was missing")
        beside = poisoned.begin_verb(*edit)
        wait_until(lambda beside=beside, is_time=is_time: beside.poll() is not None or is_time(), "it began", look_seconds=0)
        if beside.poll() is None:
            os.kill(beside.pid, signal.SIGKILL)
        beside.wait()
        poisoned.verb(*edit)
    for unit in units:
        poisoned.wait_for(unit, 1)
    assert poisoned.stop() == 0
    listed = order(poisoned, "list").stdout
    assert listed.count("  edited  undecodable") == len(units), listed
    marks = [line for line in source.read_bytes().splitlines() if b"requeued-from" in line]
    assert len(marks) == len(units)
    assert len(poisoned.notifications()) == len(units)


@pytest.mark.nightly("processes")
def test_a_requeue_that_is_killed_at_any_moment_and_made_again_requeues_each_once(poisoned: OperatedService) -> None:
    units = [f"uow-{number}" for number in range(300)]
    poisoned.start_and_wait()
    for unit in units:
        poisoned.tell(unit, 1, 2)
    wait_for_letters(poisoned, len(units))
    cure(poisoned)
    actions = poisoned.out_directory / "dead-letters-actions.jsonl"
    for size in (0, 1, 30_000, 60_000, 90_000):
        beside = poisoned.begin_verb("dead-letters", "requeue", "--all")
        wait_until(
            lambda size=size, beside=beside: beside.poll() is not None or (actions.exists() and actions.stat().st_size >= size),
            "it began",
            look_seconds=0,
        )
        if beside.poll() is None:
            os.kill(beside.pid, signal.SIGKILL)
        beside.wait()
    assert order(poisoned, "requeue", "--all").returncode == 0
    for unit in units:
        poisoned.wait_for(unit, 1, 2)
    assert poisoned.stop() == 0
    marks = [line for line in (poisoned.in_directory / "partition-0.jsonl").read_bytes().splitlines() if b"requeued-from" in line]
    assert len(marks) == len(units)
    assert len(poisoned.notifications()) == 2 * len(units)
    assert len(poisoned.dead_letters()) == len(units)


def test_two_people_at_once_requeue_each_once(poisoned: OperatedService) -> None:
    poisoned.start_and_wait()
    poisoned.tell("uow-1", 1, 2)
    wait_for_letters(poisoned, 1)
    cure(poisoned)
    both = [poisoned.begin_verb("dead-letters", "requeue", "--all") for _ in range(4)]
    assert 0 in {each.wait() for each in both}
    poisoned.wait_for("uow-1", 1, 2)
    poisoned.tell("uow-1", 3)
    poisoned.wait_for("uow-1", 1, 2, 3)
    assert poisoned.stop() == 0


TROUBLED = """
from time import sleep

from resequencer.errors import TransientError


def target(produced):
    report = str(produced["report"])
    if "ACTC" in report:
        raise TransientError("the table of customers is being replaced")
    if "ACCP" in report:
        return 1 // 0
    sleep(0.7)  # Longer than processing-timeout: this call is to be logged as one that takes long.
    return report.encode()
"""


def test_what_fails_takes_long_or_is_set_aside_is_in_the_log_once_with_its_stack(poisoned: OperatedService) -> None:
    (poisoned.directory / "sheets.py").write_text(TROUBLED, encoding="utf-8")
    resequencer = f"{NOTIFICATION}.resequencer"
    poisoned.start_and_wait(f"{resequencer} {{ processing-timeout = 600ms, stash-timeout = 1s }}")
    poisoned.append(b"no envelope", b"none either")
    poisoned.tell("uow-1", 1, 2)
    poisoned.tell("uow-2", 1, 3)
    poisoned.tell("uow-3", 1, 2)
    why = "for attempt 2 of 3, after TransientError"
    poisoned.wait_for_report(lambda report: any(why == f"for {each.waits_for}" for each in report.oldest_waits), "it says why")
    poisoned.wait_for_report(
        lambda report: report.counts["overruns"] >= 3 and sum(report.dead_letters.values()) == 5,
        "all of it has happened",
    )
    log = poisoned.log
    assert log.count("is a dead letter, undecodable: ") == 1
    assert log.count("is a dead letter, handler-failed: ") == 1
    assert "  ZeroDivisionError: " in log
    assert "sheets.py" in log
    assert log.count("failed, another attempt follows, if any remains: TransientError: the table of customers") == 1
    assert log.count("s, processing-timeout is 0.6 s") == 1
    assert poisoned.stop() == 0
