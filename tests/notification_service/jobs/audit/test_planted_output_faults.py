"""Each fault that is planted into the output is found, named and located, and nothing else is found."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from harness.planted.output import FAULTS, OutputFault
from harness.spark.audited_service import AuditedService, lines_of, write_lines

from notification_service.jobs.audit.finding import Deviation


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("processed")
    AuditedService(directory).live(units=60, losses=0.03)
    return directory


@pytest.fixture
def audited(processed: Path, tmp_path: Path) -> AuditedService:
    copytree(processed, tmp_path / "copy")
    return AuditedService(tmp_path / "copy")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_and_nothing_else(audited: AuditedService, fault: OutputFault) -> None:
    unit = fault.strike(audited)
    assert audited.findings() == [(fault.deviation.value, unit)]


@pytest.mark.parametrize(
    ("header", "deviation", "text"),
    [
        ("notification-id", Deviation.UNREADABLE, "notifications.jsonl, byte 0: a notification without a key or the header"),
        ("source-position", Deviation.ORPHAN, ""),
    ],
)
def test_what_names_no_position_is_reported_without_one(
    audited: AuditedService, header: str, deviation: Deviation, text: str
) -> None:
    lines = lines_of(audited.notifications)
    del lines[0]["headers"][header]
    write_lines(audited.notifications, lines)
    (found,) = (each for each in audited.audit() if each.deviation == deviation)
    assert (found.partition, found.offset) == (None, None)
    assert str(found.what).startswith(text)


def test_when_a_notification_was_made_is_no_part_of_its_content(audited: AuditedService) -> None:
    lines = lines_of(audited.notifications)
    for line in lines:
        line["value"]["CstmrPmtStsRpt"]["GrpHdr"]["CreDtTm"] = "2031-01-01T00:00:00.000Z"
    write_lines(audited.notifications, lines)
    assert audited.findings() == []


def test_a_repetition_that_says_so_is_none(audited: AuditedService) -> None:
    lines = lines_of(audited.notifications)
    lines.append(lines[5] | {"headers": lines[5]["headers"] | {"possible-duplicate": "true"}})
    write_lines(audited.notifications, lines)
    assert audited.findings() == []
