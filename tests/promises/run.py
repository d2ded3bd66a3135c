"""Plants a fault in a copy of the project, and runs the tests that shall notice it.

The copy lies in a temporary directory. All processes of a test import the copy: it comes first in their PYTHONPATH.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from harness.packages import ROOT
from harness.processes.wheels import copy_project

if TYPE_CHECKING:  # The catalogue runs as a program, which imports this module.
    from promises.planted import PlantedFault

_JARS, _ENVIRONMENT = ".servers", ".venv"
_SAMPLES = ROOT.parent / "shared"
"""The samples that lie beside a checkout, if they do: without them some tests are skipped."""

_TEST_SECONDS = 1_200
"""Below the limit of the test around it. A test with Spark took more than 300 s on a machine with six times its load."""
_FAILED = re.compile(r"\b[1-9][0-9]* failed\b")
_PASSED = re.compile(r"\b[1-9][0-9]* passed\b")
_TIME_OVER = "Failed: Timeout (>"
_LINES_SHOWN = 40


class Verdict(StrEnum):
    """What the tests found of a planted fault.

    `BROKEN`: no test failed by itself and none passed. It was not found, was skipped, had no server, or its time was over. That
    proves nothing.
    """

    NOTICED = "noticed"
    NOT_NOTICED = "not noticed"
    BROKEN = "broken"


class Trial(NamedTuple):
    """The verdict, how long it took, and the end of what pytest printed."""

    verdict: Verdict
    seconds: float
    printed: str


def run_planted(fault: PlantedFault) -> Trial:
    """Plant the fault in a copy of the checkout, and run its tests there until one fails."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory) / "copy"
        copy_project(copy)
        _share(copy)
        plant(fault, copy)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--timeout={_TEST_SECONDS}", *fault.tests],
            cwd=copy,
            env=_environment(copy),
            capture_output=True,
            text=True,
            check=False,
        )
    printed = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return Trial(_verdict(done.returncode, done.stdout), monotonic() - began, "\n".join(printed[-_LINES_SHOWN:]))


def plant(fault: PlantedFault, root: Path) -> None:
    """Replace the text in the file. It has to be there exactly once."""
    file = root / fault.file
    file.write_text(fault.planted_in(file.read_text(encoding="utf-8")), encoding="utf-8")


def main(faults: Sequence[PlantedFault], names: Sequence[str]) -> int:
    """Try the faults with these names, or all, and print a line for each. Return 0 if all are noticed, else 1."""
    if unknown := set(names) - {each.name for each in faults}:
        print(f"unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    missed = 0
    for fault in faults:
        if not names or fault.name in names:
            trial = run_planted(fault)
            print(f"{trial.verdict:<12} {trial.seconds:5.0f} s  {fault.name}", flush=True)
            if trial.verdict is not Verdict.NOTICED:
                missed += 1
                print(trial.printed, flush=True)
    return 1 if missed else 0


def _share(copy: Path) -> None:
    """Let the copy use the jars of the servers, which are fetched once, and where they are there, environment and samples."""
    (ROOT / _JARS).mkdir(exist_ok=True)
    links = {copy / name: ROOT / name for name in (_JARS, _ENVIRONMENT)} | {copy.parent / _SAMPLES.name: _SAMPLES}
    for link, target in links.items():
        if target.exists():
            link.symlink_to(target)


def _environment(copy: Path) -> dict[str, str]:
    """Return the environment without what a pytest around this one says to its own processes. Bytecode is kept in the copy."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours | {"PYTHONPATH": str(copy)}


def _verdict(code: int, output: str) -> Verdict:
    """Return what the exit code and the last line say. Errors of fixtures alone are no failure of a test."""
    last = output.rstrip().rpartition("\n")[2]
    if code == 1 and _FAILED.search(last) and _TIME_OVER not in output:
        return Verdict.NOTICED
    return Verdict.NOT_NOTICED if code == 0 and _PASSED.search(last) else Verdict.BROKEN
