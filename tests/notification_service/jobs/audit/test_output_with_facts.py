"""The audit of output that was made with aggregation: it expects the headers of a group where the output has any."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.spark.audited_service import AuditedService, lines_of, write_lines
from msgspec.structs import replace

from notification_service.jobs.audit.finding import Deviation

OF_GROUP = ("group-id", "group-total", "amount")


@pytest.fixture
def audited(tmp_path: Path) -> AuditedService:
    audited = AuditedService(tmp_path, has_facts=True)
    audited.live(units=20)
    return audited


@pytest.mark.parametrize("makes_facts", [True, False])
def test_it_follows_from_its_input_whether_aggregation_is_on_or_off_now(audited: AuditedService, makes_facts: bool) -> None:
    assert any("group-id" in line["headers"] for line in lines_of(audited.notifications))
    audited.handler_settings = replace(audited.handler_settings, makes_facts=makes_facts)
    assert audited.findings() == []


def test_notifications_of_a_time_without_aggregation_are_no_deviation(audited: AuditedService) -> None:
    lines = lines_of(audited.notifications)
    earlier = sorted({line["headers"]["source-position"] for line in lines})[::2]
    for line in (each for each in lines if each["headers"]["source-position"] in earlier):
        line["headers"] = {name: value for name, value in line["headers"].items() if name not in OF_GROUP}
    write_lines(audited.notifications, lines)
    assert audited.findings() == []


@pytest.mark.parametrize("value", ["A" * 32, None])
def test_another_group_is_one_and_so_is_a_missing_one_beside_its_amount(audited: AuditedService, value: str | None) -> None:
    lines = lines_of(audited.notifications)
    struck = next(line for line in lines if all(name in line["headers"] for name in OF_GROUP))
    if value is None:
        del struck["headers"]["group-id"]
    else:
        struck["headers"]["group-id"] = value
    write_lines(audited.notifications, lines)
    assert audited.findings() == [(Deviation.WRONG_HEADERS.value, struck["key"])]
