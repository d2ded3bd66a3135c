"""The audit finds nothing in correct output, with any strategy and any disorder of the input."""

from __future__ import annotations

import pytest
from harness.spark.audited_service import AuditedService

from notification_service.jobs.audit.row_audit import ARRIVAL, PUBLISHED

STRATEGIES = ("SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("numbering", ["shared", "separate"])
def test_the_output_of_the_service_follows_from_its_input(tmp_path, strategy, numbering):
    audited = AuditedService(tmp_path, strategy)
    audited.live(numbering=numbering, duplicates=0.1, conflicts=0.05)
    rows = audited.audit()
    assert audited.findings() == []
    assert audited.open() == 0
    assert sum(each.kind == PUBLISHED for each in rows) > 100
    assert any(each.is_incomplete for each in rows)
    assert any(each.depth for each in rows if each.kind == ARRIVAL)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_so_it_is_where_much_is_lost_and_late_and_rotated_and_in_several_partitions(tmp_path, strategy, seed):
    audited = AuditedService(tmp_path, strategy, rotate_bytes=100_000)
    audited.live(seed=seed, partitions=2, losses=0.1, late=0.2, duplicates=0.1)
    assert audited.findings() == []


@pytest.mark.parametrize("target_type", ["report-xml", "produced-report"])
def test_so_it_is_with_each_target_type(tmp_path, target_type):
    audited = AuditedService(tmp_path, target_type=target_type)
    audited.live()
    assert audited.findings() == []


def test_lines_of_blanks_are_no_records(tmp_path):
    audited = AuditedService(tmp_path)
    for blank in (b"", b" \t", b"\xef\xbb\xbf", b"\r"):
        audited.service.put(blank)
    audited.live(units=3)
    assert audited.findings() == []


@pytest.mark.slow
def test_what_was_not_yet_read_is_open_and_not_lost(tmp_path):
    audited = AuditedService(tmp_path)
    audited.live()
    before = audited.open()
    audited.service.put((audited.directory / "in" / "partition-0.jsonl").read_bytes().splitlines()[0].replace(b"uow", b"new"))
    assert audited.findings() == []
    assert audited.open() >= before
