"""Each call of SQLite to the disk fails once or a few times: the commit is unavailable, never half stored, and succeeds later."""

import json
import subprocess
import sys
from errno import EIO, EMFILE, ENOSPC
from pathlib import Path

import pytest
from harness.disk.faulty_disk import Call, FaultyDisk

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("struck_program.py")
FULL, FAILED, NOT_OPENED = "database or disk is full", "disk I/O error", "unable to open database file"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> FaultyDisk:
    return FaultyDisk.make(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    ("name", "calls", "error", "text"),
    [
        ("state.db-log-1", Call.WRITE, ENOSPC, "No space left on device"),
        ("state.db-log-1", Call.SYNC | Call.TRUNCATE, EIO, "Input/output error"),
        ("state.db-log-1", Call.OPEN, ENOSPC, "No space left on device"),
        ("state.db-log-1", Call.READ | Call.UNLINK, EIO, "Input/output error"),
        ("state.db-wal", Call.WRITE, ENOSPC, FULL),
        ("state.db-wal", Call.WRITE, EIO, FAILED),
        ("state.db-wal", Call.SYNC, EIO, FAILED),
        ("state.db-wal", Call.OPEN, ENOSPC, NOT_OPENED),
        ("state.db-shm", Call.WRITE | Call.TRUNCATE, ENOSPC, FAILED),
        ("state.db-shm", Call.OPEN, ENOSPC, NOT_OPENED),
        ("state.db", Call.OPEN, EMFILE, ""),
        ("state.db", Call.LINK, ENOSPC, "No space left on device"),
        (".new", Call.WRITE, ENOSPC, FULL),
        (".new", Call.SYNC, EIO, FAILED),
        (".new-journal", Call.OPEN | Call.WRITE | Call.SYNC, EIO, FAILED),
    ],
)
def test_a_call_that_fails_is_a_storage_that_is_away(
    disk: FaultyDisk, name: str, calls: Call, error: int, text: str, times: int
) -> None:
    found = runs(disk, name, calls, error, times)
    assert found["problems"] == []
    assert found["refusals"] == 0
    assert found["runs"] > 0
    assert any(text in each for each in found["outages"]), found["outages"]


@pytest.mark.parametrize("calls", [Call.WRITE, Call.SYNC, Call.TRUNCATE])
def test_a_checkpoint_that_fails_is_made_up_for_by_the_next(disk: FaultyDisk, calls: Call) -> None:
    found = runs(disk, "state.db", calls, EIO, 3)
    assert (found["problems"], found["refusals"]) == ([], 0)
    assert any(FAILED in each for each in found["outages"]), "what the automatic ones do not tell, that of the outgrown log does"


@pytest.mark.parametrize("times", [1, 12])
def test_a_page_that_cannot_be_read_for_a_while_is_no_damage(disk: FaultyDisk, times: int) -> None:
    """SQLite reports damage. A second read shows the truth; if the page can be read by then, the worker is started again."""
    found = runs(disk, "state.db", Call.READ, EIO, times)
    assert found["problems"] == []
    assert times == 1 or any("state.db: EIO" in each for each in found["outages"]), found["outages"]


def runs(disk: FaultyDisk, name: str, calls: Call, error: int, times: int) -> dict[str, object]:
    """The result of a run for each call; a struck write leaves its first hundred bytes."""
    arguments = map(str, (name, int(calls), error, times, 100))
    environment = {**disk.environment, "PYTHONPATH": f"{PROGRAM.parents[2]}:{PROGRAM.parents[3]}"}
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), "strike", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found
