from pathlib import Path

import pytest

from notification_service.commands.status import Taken, disk_use, in_words
from notification_service.configuration.configuration import load
from notification_service.connectors.files.input_archive import InputArchive
from notification_service.connectors.files.operations import SystemFiles


@pytest.fixture
def configuration(tmp_path: Path):
    return load(overrides=[f'payment-status-notification.run-directory="{tmp_path}"'])


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * (size - 1) + b"\n")
    return path


def test_a_service_that_never_ran_takes_nothing(configuration):
    assert set(disk_use(configuration).values()) == {Taken(0, 0)}
    assert in_words(disk_use(configuration)) == ""


def test_each_kind_of_file_is_counted_once(configuration, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lock").touch()
    output = ("out/notifications.jsonl", "out/notifications.000001.jsonl")
    for name in (*output, "state.db", "state.db-wal", "state.db-log-1", "service.log.1"):
        write(tmp_path / name, 40_960)
    use = disk_use(configuration)
    assert use["output"] == use["database log"] == Taken(2, 81_920)
    assert use["database"] == use["service log"] == Taken(1, 40_960)
    assert in_words(use) == "output 0.1 MB in 2 files, database 0.0 MB, database log 0.1 MB in 2 files, service log 0.0 MB"


def test_what_was_archived_counts_there_and_no_more_in_the_input(configuration, tmp_path):
    path = write(tmp_path / "in" / "partition-0.jsonl", 4_096_000)
    list(InputArchive(tmp_path / "archive", SystemFiles()).move(path, 4_096_000))
    use = disk_use(configuration)
    assert path.stat().st_size == 4_096_000
    assert use["input"].bytes <= 3 * 4_096
    assert use["archive"].files == 1
