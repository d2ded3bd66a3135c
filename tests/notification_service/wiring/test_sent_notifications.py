"""Where what left of a unit is looked for, by the address of the archive."""

from pathlib import Path

import pytest

from notification_service.wiring.sent_notifications import archived_output


@pytest.mark.parametrize("scheme", ["s3a", "hdfs", "abfss"])
def test_an_archive_in_another_file_system_is_told_of_without_its_address(scheme: str) -> None:
    left = archived_output(f"{scheme}://name:secret@place/records", "T").find_sent("uow-1", 1)
    assert f"begins with {scheme}://" in left.searched
    assert "secret" not in left.searched
    assert (left.found, left.is_complete) == ((), False)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_an_archive_at_a_path_is_read_also_if_the_path_is_a_url(prefix: str, tmp_path: Path) -> None:
    assert "makes a copy to search" in archived_output(f"{prefix}{tmp_path}/none", "T").find_sent("uow-1", 1).searched
    (tmp_path / "records").mkdir()
    found = archived_output(f"{prefix}{tmp_path}/records", "T").find_sent("uow-1", 1)
    assert f"the archive in {tmp_path}/records, which is empty" in found.searched
