"""What the real process writes to its log, and what it does not."""

import json

import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService, envelope_line
from harness.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.slow

SOON = f"{RESEQUENCER}.stash-timeout=2s"


def test_a_release_is_one_line_that_names_the_gap_and_an_envelope_is_none(service: OperatedService) -> None:
    service.tell("uow-before", 1)
    service.start_and_wait(SOON)
    service.wait_for("uow-before", 1)
    wait_until(lambda: ": ready\n" in service.log, "the line that it is ready")
    before = service.log.count("\n")
    service.append(*(envelope_line(f"uow-{number}", sequence) for number in range(500) for sequence in (2, 1, 1, 3)))
    service.tell("uow-gap", 5, 4)
    service.wait_for("uow-gap", 4, 5)
    assert service.stop() == 0
    lines = service.log.splitlines()[before:]
    assert len(service.notifications()) == 1_503
    assert [line.split(": ", 1)[1] for line in lines if "WARNING" not in line] == ["draining", "drained"]
    (released,) = [line for line in lines if "WARNING" in line]
    assert "released 2 envelopes of unit uow-gap after " in released
    assert "(deadline): missing sequence:1" in released
    assert "[unit=uow-gap partition=IPF_PROCESSING_DATA-0 position=IPF_PROCESSING_DATA-0@" in released


def test_json_logs_are_an_object_a_line_with_its_places(service: OperatedService) -> None:
    service.start_and_wait(SOON, f"{NOTIFICATION}.logging.format=json")
    service.tell("Zürich\u2028\u2029 {}", 3)
    service.wait_for("Zürich\u2028\u2029 {}", 3)
    assert service.stop() == 0
    lines = [json.loads(line) for line in service.log.rstrip("\n").split("\n")]
    (released,) = [line for line in lines if line["level"] == "warning"]
    assert released["unit"] == "Zürich\u2028\u2029 {}"
    assert released["partition"] == "IPF_PROCESSING_DATA-0"
    assert released["position"] == "IPF_PROCESSING_DATA-0@0"
    assert {"at", "level", "logger", "message"} <= lines[0].keys()


def test_no_unit_id_can_forge_a_line(service: OperatedService) -> None:
    service.start_and_wait(SOON)
    forged = "2026-01-01T00:00:00.000Z INFO forged: drained"
    ids = [f"a\u2028{forged}", f"b\u0085{forged}", f"c\n{forged}", f"d\r{forged}", "e\x1b[2J", "f\u202egnp.exe"]
    for unit in ids:
        service.tell(unit, 2)
    wait_until(lambda: len(service.notifications()) + len(service.dead_letters()) == len(ids), "all six have left")
    assert service.stop() == 0
    assert not [line for line in service.log.splitlines() if line.startswith(forged)]
    assert all(line.isprintable() for line in service.log.split("\n"))
    assert {each["headers"]["dead-letter-reason"] for each in service.dead_letters()} == {"invalid-id"}


def test_a_supervisor_in_a_container_logs_to_stderr_and_writes_no_log_file(service: OperatedService) -> None:
    process = service.begin_verb("supervise", "--log-to-stderr")
    log = service.directory / "supervise.log"
    wait_until(lambda: log.exists() and " ready" in log.read_text(encoding="utf-8"), "ready")
    process.terminate()
    assert process.wait(DEADLINE_SECONDS) == 0
    assert "drained" in log.read_text(encoding="utf-8")
    assert not (service.run_directory / "service.log").exists()
