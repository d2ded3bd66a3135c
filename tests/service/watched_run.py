"""A worker's run on a workload of the crash simulation. As a program it runs on a faulty disk, which records all its calls.

tests/service/watched_run.py DIRECTORY SEED PHASE        from this phase to the last; the file `phase` says which one it is in
"""

import os
import sys
from itertools import count
from pathlib import Path

from harness.crashes.outcomes import Outcome
from harness.faltering import Mistakes
from harness.service_under_test import Service
from harness.workloads.shuffled import Workload, workload

_MAX_CYCLES = 3_000


def live(directory: Path, work: Workload, first: int, mark: int | None = None) -> Outcome:
    """Run the phases from `first` on, with the files that an earlier run left."""
    service = Service(directory, work.plan)
    service.handler.away_until.update(work.away_until)
    service.handler.never |= work.never
    service.handler.mistakes = Mistakes(work.mistakes)
    service._tokens = count(int.from_bytes(os.urandom(6)))
    service.clock.advance(sum(phase.advance_ms for phase in work.phases[:first]))
    service.start()
    for number, phase in enumerate(work.phases[first:], first):
        if mark is not None:
            os.pwrite(mark, b"%d" % number, 0)
        if phase.is_outage:
            service.kill()
            service.start()
        service.clock.advance(phase.advance_ms)
        feed(directory, work, number)
        service.run(_MAX_CYCLES)
    service.stop()
    return Outcome(tuple(service.notifications), tuple(service.dead), 0, 0, 0)


def feed(directory: Path, work: Workload, phase: int) -> None:
    """Let the input hold all lines up to this phase; the lines of an earlier run are there already."""
    lines = [each for phase in work.phases[: phase + 1] for each in phase.lines]
    (directory / "in").mkdir(exist_ok=True)
    for partition in {partition for partition, _ in lines}:
        with (directory / "in" / f"partition-{partition}.jsonl").open("ab") as file:
            file.write(b"".join(line + b"\n" for each, line in lines if each == partition)[file.tell() :])


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    live(directory, workload(int(sys.argv[2])), int(sys.argv[3]), os.open(directory / "phase", os.O_CREAT | os.O_WRONLY))
