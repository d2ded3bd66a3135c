"""Envelopes per second of a bare loop, the core in the process, and the whole worker: `python -m benchmarks.throughput`.

The same envelopes go through all of them: about 1.1 KB each, 25 000 units of about eight, out of order within 2 000 places, 2 %
of them twice, none lost, one partition, strategy SEQUENCE. Each reads lines, decodes envelopes, orders them, makes the pain.002
and encodes the output lines. The differences:

    bare loop, trusting   one loop over dicts (`_bare_loop.py`): no checks, no actors, no time, no durability
    bare loop             the same with the service's decoder, which refuses what is no envelope (docs/contract.md, section 4)
    core in process       actors, deadlines, retries, metrics and a commit per poll, with storage none; lines stay in memory
    pass-through          the core again, which reads the envelopes as any JSON by a mapping, and lets them leave as they came
    whole worker          file transport and embedded SQLite: every commit and publication is synced before the next

Each has a process of its own. They run in lockstep: a slice of the envelopes in one after the other. A slice is a round of the
table, so a difference of three percent can be seen. CPU is that of the process, with its system calls. Before, the output of the
bare loop and of the worker are compared.

`--instructions` counts the instructions for an envelope with Valgrind. No other work on the machine changes such a count, so a
change of half a percent can be seen in one run. It is no measure of time: the core waits for memory more often than the loop
does. Each program runs to the end of so many envelopes and of more of them; the difference counts, which has no start in it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from benchmarks._bare_loop import Read, bare_loop, checked, trusting
from benchmarks._runner import Case, Figures, Stopwatch, apart, arguments, directory, measure
from benchmarks._worker import PARTITION, Workload, in_process, made, on_files, override, run_through
from guardian.cycle import Cycle
from resequencer.gc_tuning import calm_collector

Output = dict[str, list[dict[str, Any]]]
"""The output of each unit, in order."""

Run = Callable[[int], int]
"""Reads on until so many envelopes were read in all, and returns how many they are."""

_SLICE = 1_000
_FEW, _MANY = 1_000, 5_000
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_INSTRUCTIONS = re.compile(r"I +refs: +([0-9,]+)")


def loop(read: Read, workload: Workload, _: Path) -> Run:
    read_to = 0

    def reading() -> Iterator[bytes]:
        nonlocal read_to
        for line in workload.read():
            read_to += 1
            yield line

    output = bare_loop(reading(), PARTITION, read)

    def run(to: int) -> int:
        while read_to < to and next(output, None) is not None:
            pass
        return read_to

    return run


def core(workload: Workload, place: Path, *chosen: str) -> Run:
    return partial(_run, in_process(workload.read(), place, *chosen)[0])


def worker(workload: Workload, place: Path) -> Run:
    return partial(_run, on_files(workload.read(), place).cycle)


def _run(cycle: Cycle, to: int) -> int:
    while cycle.metrics.counts["records"] < to:
        cycle.run_once()
    return int(cycle.metrics.counts["records"])


_EVENTS = "ipf.processing-data.ingress.events"
_PASS_THROUGH = (
    f"{_EVENTS}.format=mapped",
    f'{_EVENTS}.mapped {{ flow = "value:flow", sequence = "value:sequence" }}',
    override("handler", "pass-through"),
)
MEASURED: dict[str, Callable[[Workload, Path], Run]] = {
    "bare loop, trusting": partial(loop, trusting),
    "bare loop": partial(loop, checked),
    "core in process": core,
    "pass-through": lambda workload, place: core(workload, place, *_PASS_THROUGH),
    "whole worker": worker,
}
GOALS = {"core in process": 0.6, "whole worker": 0.4}
"""Ratios to the bare loop, per second of CPU."""


def find_difference(workload: Workload) -> str | None:
    """Return the difference between the output of the bare loop and of the whole worker; None if there is none."""
    by_loop = _by_unit(bare_loop(workload.read(), PARTITION, checked))
    if by_loop != _by_unit(bare_loop(workload.read(), PARTITION, trusting)):
        return "the two bare loops differ"
    with directory() as place:
        run_through(on_files(workload.read(), place).cycle, workload.lines)
        with (place / "out" / "notifications.jsonl").open("rb") as file:
            by_worker = _by_unit(file)
    return next((f"{unit} differs" for unit in by_loop | by_worker if by_loop.get(unit) != by_worker.get(unit)), None)


def _by_unit(lines: Iterable[bytes]) -> Output:
    output: Output = {}
    for line in lines:
        notification = msgspec.json.decode(line)
        del notification["number"], notification["value"]["CstmrPmtStsRpt"]["GrpHdr"]["CreDtTm"]
        output.setdefault(notification["key"], []).append(notification)
    return output


_here: dict[str, Any] = {}
"""What a process of its own runs, and how far it has come."""


def _slice(name: str, workload: Workload, place: Path) -> Figures:
    """Run on by a slice. The first one begins, and warms up."""
    if not _here:
        _here.update(run=MEASURED[name](workload, place), read=0)
        calm_collector()
    before, watch = _here["read"], Stopwatch()
    _here["read"] = _here["run"](min(before + _SLICE, workload.lines))
    return watch.spent().of_each(max(1, _here["read"] - before))


def in_lockstep(chosen: Any, workload: Workload) -> None:
    with ExitStack() as stack:
        cases = []
        for name in MEASURED:
            place = stack.enter_context(directory())
            process = stack.enter_context(get_context("spawn").Pool(1))
            step = partial(process.apply, _slice, (name, workload, place))
            step()
            cases.append(Case(name, step, "bare loop", GOALS.get(name, "")))
        chosen.rounds = workload.lines // _SLICE - 1
        measure(chosen, cases)


def instructions(name: str, workload: Workload) -> Figures:
    few, many = (_count_to(name, workload, each) for each in (_FEW, _MANY))
    return {"instructions": (many - few) / (_MANY - _FEW)}


def _count_to(name: str, workload: Workload, envelopes: int) -> int:
    program = (sys.executable, "-m", "benchmarks.throughput", "--run", name, str(workload.file), str(envelopes))
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # So that each run has its dicts in the same order.
    done = subprocess.run((*_VALGRIND, *program), env=environment, capture_output=True, text=True, check=True)
    found = _INSTRUCTIONS.search(done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def run_only(name: str, file: str, envelopes: str) -> None:
    with directory() as place:
        MEASURED[name](Workload(Path(file), _MANY + _FEW), place)(int(envelopes))
    os._exit(0)  # What a process does at its end is no work for an envelope.


def main() -> None:
    chosen = arguments(__doc__, large={"envelopes": 1_000_000}, envelopes=200_000, instructions=False, run=[""])
    if chosen.run != [""]:
        run_only(*chosen.run)
    if chosen.instructions:
        assert shutil.which("valgrind"), "valgrind is not installed"
        with made(_MANY + 2 * _FEW) as workload:
            names = ("bare loop", "core in process", "pass-through")
            cases = [Case(name, partial(instructions, name, workload), "bare loop") for name in names]
            measure(chosen, cases, {"instructions": -1})
        return
    chosen.continues = False  # A slice follows the one before, in the same process.
    with made(chosen.envelopes) as workload:
        difference = apart(find_difference, msgspec.structs.replace(workload, lines=min(workload.lines, 20_000)))
        print(f"{workload.lines} envelopes; the first 20 000 through loop and worker: {difference or 'the same notifications'}")
        in_lockstep(chosen, workload)
    if difference is not None:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
