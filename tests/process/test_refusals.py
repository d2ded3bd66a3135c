"""Inputs and settings that the real process cannot use: one clear line, an exit code, and nothing lost."""

import json
import os
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest
from harness.processes.command import run_here
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService

from notification_service.status.report import State

pytestmark = pytest.mark.slow

HEADER = "process_flow_name,event_name,transaction_status,reason_code,additional_information\n"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (f"{RESEQUENCER}.stratgy=SEQUENCE", f"{RESEQUENCER}.strategy"),
        (f"{RESEQUENCER}.stash-timeout=0s", "stash-timeout"),
        (f"{RESEQUENCER}.strategy=nowhere.to_be:Found", "nowhere"),
        (f"{RESEQUENCER}.strategy=json:loads", "json:loads"),
        (f"{NOTIFICATION}.target-type=nowhere.to_be:found", "nowhere"),
        (f"{NOTIFICATION}.target-type=broken_module:report", "division by zero"),
        (f'{NOTIFICATION}.settings="bad.csv"', "bad.csv:2"),
        (f'{NOTIFICATION}.settings="missing.csv"', "missing.csv"),
        (f'{NOTIFICATION}.settings="latin-1.csv"', "latin-1.csv"),
    ],
)
def test_a_refused_configuration_is_a_line_and_creates_nothing(service: OperatedService, override: str, expected: str) -> None:
    directory = service.directory
    (directory / "broken_module.py").write_text("1 / 0\n", encoding="utf-8")
    (directory / "bad.csv").write_text(f"{HEADER}PaymentInitiationFlow,PaymentReceived,XXXX,,\n", encoding="utf-8")
    (directory / "latin-1.csv").write_bytes(f"{HEADER}PaymentInitiationFlow,PaymentReceived,RCVD,,".encode() + b"\xe9\n")
    ended = run_here(directory, ["run", *service.arguments, override])
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert expected in ended.stderr
    assert ended.stderr.startswith("resequencer: ")
    assert ended.stderr.count("\n") == 1
    assert not (directory / "run").exists()


def test_a_damaged_database_is_refused_by_name_and_left_as_it_is(service: OperatedService) -> None:
    service.start_and_wait(f"{RESEQUENCER}.stash-timeout=10m")
    service.tell("uow-1", 1, 3)
    service.wait_for("uow-1", 1)
    assert service.stop() == 0
    database = service.run_directory / "state.db"
    whole = database.read_bytes()
    for damage in (_noise, _nothing, _cut, _text, _header, _pages, _newer):
        database.write_bytes(whole)
        damage(database)
        damaged = database.read_bytes()
        ended = service.verb("run")
        assert ended.returncode == 1, damage.__name__
        last = ended.stderr.splitlines()[-1]
        assert last.startswith("resequencer: run/application/state.db: "), damage.__name__
        assert re.search("restore it from a backup|start the newer version", last), damage.__name__
        assert "Traceback" not in ended.stderr
        assert database.read_bytes() == damaged, damage.__name__
    status = service.verb("status").stdout
    assert status.startswith("not running: the service ended with: run/application/state.db: its format is 99")
    database.write_bytes(whole)
    service.start_and_wait(f"{RESEQUENCER}.stash-timeout=10m")
    service.tell("uow-1", 2)
    service.wait_for("uow-1", 1, 2, 3)
    assert service.stop() == 0


def test_a_directory_in_the_place_of_the_database_is_refused_by_name(service: OperatedService) -> None:
    (service.run_directory / "state.db").mkdir(parents=True)
    ended = service.verb("run")
    assert ended.returncode == 1
    refusal = "this is not a file; set another path in storage.embedded.file"
    assert ended.stderr.splitlines()[-1] == f"resequencer: run/application/state.db: {refusal}"


def test_a_missing_database_is_not_taken_for_a_new_beginning(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1, 3)
    service.wait_for("uow-1", 1)
    assert service.stop() == 0
    (service.run_directory / "state.db").unlink()
    service.start_and_wait()
    service.tell("uow-1", 2)
    service.wait_for_report(lambda report: report.units.waiting == 0 and report.counts.get("records") == 3, "read again")
    assert service.stop() == 0
    assert "possible-duplicate" not in service.notifications()[0]["headers"]
    assert set(service.sequences("uow-1")) == {1, 2, 3}
    assert "does not know the commit" in service.log


def test_an_input_file_that_became_shorter_is_refused_and_nothing_is_lost(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1)
    service.tell("uow-1", 2)
    service.wait_for("uow-1", 1, 2)
    assert service.stop() == 0
    file = service.in_directory / "partition-0.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    service.start()
    assert service.wait() == 1
    assert "Traceback" not in service.log
    last = service.log.splitlines()[-1]
    assert last.startswith("resequencer: ")
    assert f"partition-0.jsonl: has {len(whole) // 2} bytes" in last
    file.write_bytes(whole)
    service.tell("uow-1", 3)
    service.start_and_wait()
    service.wait_for("uow-1", 1, 2, 3)
    assert service.stop() == 0


@pytest.mark.parametrize("name", ["notifications.jsonl", "dead-letters.jsonl"])
def test_an_output_that_was_cut_or_edited_is_refused_by_name_and_nothing_is_lost(service: OperatedService, name: str) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1)
    service.append(b"not a record")
    service.wait_for("uow-1", 1)
    service.wait_for_report(lambda report: bool(report.dead_letters) and not report.partitions[0].unpublished, "both have left")
    assert service.stop() == 0
    file = service.out_directory / name
    whole = file.read_bytes()
    for damaged, problem in [
        (whole[:-30], f"has {len(whole) - 30} bytes where {len(whole)} were written: it was cut"),
        (b"x" + whole, f"no line ends at byte {len(whole)}, where the last write ended: it was edited"),
    ]:
        file.write_bytes(damaged)
        ended = service.verb("run")
        assert ended.returncode == 1
        assert ended.stderr.splitlines()[-1].startswith(f"resequencer: run/application/out/{name}: {problem}. ")
        assert service.verb("status").stdout.startswith("not running: the service ended with: run/application/out/")
        assert file.read_bytes() == damaged
    file.write_bytes(whole)
    service.start_and_wait()
    service.tell("uow-1", 2)
    service.wait_for("uow-1", 1, 2)
    assert service.stop() == 0
    assert len(service.dead_letters()) == 1


def test_an_output_that_is_cut_while_it_runs_sets_its_partitions_aside_until_it_is_whole(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    file = service.out_directory / "notifications.jsonl"
    whole = file.read_bytes()
    os.truncate(file, len(whole) - 30)
    service.tell("uow-1", 2)
    report = service.wait_for_report(lambda report: report.state is State.SOURCE_UNAVAILABLE, "its partition is set aside")
    assert "notifications.jsonl: has " in (report.reason or "")
    file.write_bytes(whole)
    service.wait_for("uow-1", 1, 2)
    assert service.stop() == 0


@pytest.mark.parametrize("key", [f"{NOTIFICATION}.run-directory", f"{NOTIFICATION}.file.directory"])
def test_a_directory_that_is_a_file_is_a_line(service: OperatedService, key: str) -> None:
    (service.directory / "taken").write_bytes(b"precious")
    ended = service.verb("run", "--set", f"{key}=taken")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("resequencer: ")
    assert "taken" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (service.directory / "taken").read_bytes() == b"precious"
    assert service.verb("status", "--set", f"{key}=taken").stdout == "not running\n"


def test_a_database_in_a_directory_that_is_not_there_is_not_begun_elsewhere(service: OperatedService) -> None:
    override = f"{NOTIFICATION}.storage.embedded.file=mounted/state.db"
    checked = service.verb("check", "--connect", "--set", override)
    assert checked.returncode == 4
    assert "mounted" in checked.stderr
    ended = service.verb("run", "--set", override)
    assert ended.returncode == 1
    assert "its directory does not exist" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (service.directory / "mounted").exists()


def test_another_strategy_is_refused_while_units_wait(service: OperatedService) -> None:
    service.start_and_wait(f"{RESEQUENCER}.stash-timeout=10m")
    service.tell("uow-1", 2)
    service.wait_for_report(lambda report: report.units.waiting == 1, "it waits")
    assert service.stop() == 0
    ended = service.verb("run", "--set", f"{RESEQUENCER}.strategy=STRICT_SEQUENCE")
    assert ended.returncode in (1, 3)
    assert "Traceback" not in ended.stderr
    assert "SEQUENCE" in ended.stderr.splitlines()[-1]
    service.start_and_wait()
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1, 2)
    assert service.stop() == 0


def test_check_connect_does_not_disturb_a_running_service(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    checked = service.verb("check", "--connect", "--json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["unreachable"] == []
    service.tell("uow-1", 2)
    service.wait_for("uow-1", 1, 2)
    report = service.wait_for_report(lambda report: report.counts.get("handled") == 2, "both are handled")
    assert report.counts["ownership_lost"] == 0
    assert service.stop() == 0


def _noise(database: Path) -> None:
    database.write_bytes(b"this was a database" * 500)


def _nothing(database: Path) -> None:
    database.write_bytes(b"")


def _cut(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:-100])


def _text(database: Path) -> None:
    database.write_text("Notes on the service\n" * 400, encoding="utf-8")


def _header(database: Path) -> None:
    _flip(database, range(16, 24))


def _pages(database: Path) -> None:
    """Change some bytes of the cells in each page but the first."""
    _flip(database, [at for page in range(4_096, database.stat().st_size, 4_096) for at in range(page, page + 16)])


def _flip(database: Path, places: Iterable[int]) -> None:
    content = bytearray(database.read_bytes())
    for at in places:
        content[at] ^= 0x5A
    database.write_bytes(content)


def _newer(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
