"""Instructions for an envelope, in the bare loop and in the core: `python -m benchmarks.instructions`. Needs Valgrind.

No other work on the machine changes such a count, so a change of half a percent can be seen in one run. It is no measure of time:
the core waits for memory more often than the loop does, so its ratio by time (throughput.py) is lower.

Each runs twice, to the end of so many envelopes and of more of them; what counts is the difference, which has no start in it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks._workload import Workload, made
from benchmarks.throughput import MEASURED

_FEW, _MANY = 1_000, 5_000
_COUNTED = ("bare loop", "core in process")
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_INSTRUCTIONS = re.compile(r"I +refs: +([0-9,]+)")


def count(name: str, workload: Workload) -> float:
    """Return the instructions for an envelope."""
    few, many = (_count_to(name, workload, each) for each in (_FEW, _MANY))
    return (many - few) / (_MANY - _FEW)


def _count_to(name: str, workload: Workload, envelopes: int) -> int:
    program = (sys.executable, "-m", "benchmarks.instructions", "--run", name, str(workload.file), str(envelopes))
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # So that each run has its dicts in the same order.
    done = subprocess.run((*_VALGRIND, *program), env=environment, capture_output=True, text=True, check=True)
    found = _INSTRUCTIONS.search(done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def _run(name: str, workload: Workload, envelopes: int) -> None:
    with MEASURED[name](workload) as run:
        run(envelopes)
        sys.stdout.flush()
        os._exit(0)  # What a process does at its end is no work for an envelope.


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--run", nargs=3, metavar=("NAME", "FILE", "ENVELOPES"), help="what Valgrind is started with")
    chosen = arguments.parse_args()
    if chosen.run is not None:
        name, file, envelopes = chosen.run
        _run(name, Workload(Path(file), _MANY + _FEW), int(envelopes))
    if shutil.which("valgrind") is None:
        print("nothing is counted: valgrind is not installed")
        return
    with made(_MANY + 2 * _FEW) as workload:
        counts = {name: count(name, workload) for name in _COUNTED}
    for name, found in counts.items():
        print(f"{name:20}{found:12,.0f} instructions for an envelope, of the bare loop {counts['bare loop'] / found:.3f}")


if __name__ == "__main__":
    main()
