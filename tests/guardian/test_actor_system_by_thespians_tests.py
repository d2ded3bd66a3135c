"""Thespian's own test suite on our system base: each test that passes on the simple base must pass on ours.

Four tests that sleep for two minutes in all are left out, and those of bases with several processes. So is one that uses no
base, and fails where a machine takes longer than 60 microseconds between two lines.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import thespian.test

from guardian import actor_system

_SUITE = Path(thespian.test.__file__).parent
_FILES = sorted(_SUITE.glob("test_*.py"))
_CHOICE = (
    "not multiproc and not testSmallHive and not (test_multiple_threads_private_context_ask and (10 or 100)) "
    "and not test_expiration_timer_comparison"
)
_PARTS = 3  # The suite mostly sleeps, so its parts run in parallel.
_PLUGIN = "thespian_on_our_base"


def start(directory: Path, files: list[Path], *plugins: str) -> subprocess.Popen[str]:
    directory.mkdir()
    (directory / "pytest.ini").write_text("[pytest]\n")  # Warnings are errors in our tests, but not in Thespian's.
    where = ["--rootdir", str(_SUITE), "-c", str(directory / "pytest.ini"), "-p", "no:cacheprovider"]
    sought = [str(Path(__file__).parent), str(Path(actor_system.__file__).parent.parent)]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-rp", "-k", _CHOICE, *where, *plugins, *map(str, files)],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sought), "THESPLOG_FILE": str(directory / "thespian.log")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def passed(processes: list[subprocess.Popen[str]]) -> set[str]:
    lines = [line for process in processes for line in process.communicate()[0].splitlines()]
    return {line.removeprefix("PASSED ") for line in lines if line.startswith("PASSED ")}


@pytest.mark.nightly("actors")
def test_what_passes_on_the_plain_base_passes_on_ours(tmp_path: Path) -> None:
    parts = [_FILES[part::_PARTS] for part in range(_PARTS)]
    on_plain = [start(tmp_path / f"plain{number}", part) for number, part in enumerate(parts)]
    on_ours = [start(tmp_path / f"ours{number}", part, "-p", _PLUGIN) for number, part in enumerate(parts)]
    plain, ours = passed(on_plain), passed(on_ours)
    assert len(plain) > 400
    assert plain - ours == set()


@pytest.mark.slow
def test_the_judge_sees_our_base_and_not_the_plain_one(tmp_path: Path) -> None:
    judged = tmp_path / "test_which.py"
    judged.write_text(
        "from thespian.actors import ActorSystem\n"
        "from thespian.test import asys\n"
        "def test_which(asys):\n"
        "    assert type(asys._systemBase).__name__ == 'InProcessSystemBase'\n"
        "    assert type(ActorSystem(transientUnique=True, logDefs=False)._systemBase).__name__ == 'InProcessSystemBase'\n"
    )
    process = start(tmp_path / "ours", [judged], "-p", _PLUGIN)
    assert "1 passed" in process.communicate()[0]
