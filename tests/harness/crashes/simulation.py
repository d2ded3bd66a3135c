"""A deterministic simulation of the worker on files and SQLite: one seed determines the workload and the points of the faults.

The output of a run with faults must equal the output of the same run without faults. Replay a seed by hand with

    PYTHONPATH=tests:. .venv/bin/python tests/harness/crashes/simulation.py SEED [crashes | database | positions]
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from harness.crashes.outcomes import Forgets, Outcome, judged, with_true_marks
from harness.crashes.points import Crash, Fate, Fates, Steps, StruckFiles, StruckStorage, StruckTransport
from harness.crashes.remembered import Remembered
from harness.faltering import Mistakes
from harness.service_under_test import Service, value_of
from harness.workloads.absences import LONGEST_RETENTION_MS, STEP_MS, with_absences, without_retention
from harness.workloads.shuffled import Phase, Workload, uncut, workload
from msgspec.structs import replace

from resequencer.errors import ResequencerError

_MAX_CYCLES = 3_000
_HAVE_ABSENCES = 0.4
_HAVE_FACTS = 0.3
_DIES_IN_AN_OUTAGE = 0.6
"""The probability that the worker dies in an outage; otherwise it stands still between two cycles."""


def prepared(seed: int) -> Workload:
    """Return the workload of the seed. In some runs the retention is short, and in some there are facts."""
    work, random = workload(seed), Random(f"absences {seed}")
    if Random(f"facts {seed}").random() < _HAVE_FACTS:
        work = work._replace(plan=replace(work.plan, has_facts=True))
    return with_absences(work, random, transactions_hang=False) if random.random() < _HAVE_ABSENCES else work


def reference(work: Workload) -> Outcome:
    """Return the output of a run without faults, where no unit is ever forgotten and no turn is cut."""
    return _play(uncut(without_retention(work)), Steps(lambda _: Fate.GOES_WELL, Random(0)), Forgets.NOTHING, is_reference=True)


def simulate(
    seed: int, forgets: Forgets = Forgets.NOTHING, expected: Outcome | None = None, work: Workload | None = None
) -> Outcome:
    """Do one run with many exits, of this input or that of the seed. `problem` of the outcome is what is wrong with the run."""
    work = work or prepared(seed)
    expected = expected or reference(work)
    random = Random(f"fates {seed} {forgets}")
    outcome = judged(_play(work, Steps(random_fates(random), random), forgets), expected, forgets)
    return outcome if forgets is not Forgets.NOTHING else with_true_marks(outcome, work)


def crash_at(work: Workload, step: int, expected: Outcome) -> Outcome:
    """Do one run with one crash, at the step of this number."""
    steps = Steps(lambda number: Fate.CRASH if number == step else Fate.GOES_WELL, Random(step))
    return judged(_play(work, steps, Forgets.NOTHING), expected, Forgets.NOTHING)


def random_fates(random: Random) -> Fates:
    crash = random.choice((0.01, 0.03, 0.08))
    no_answer = random.choice((0.0, 0.02, 0.1))
    other_owner = random.choice((0.0, 0.0, 0.03))

    def fate(step: int) -> Fate:
        if step > 4_000:
            return Fate.GOES_WELL
        drawn = random.random()
        if drawn < crash:
            return Fate.CRASH
        if drawn < crash + no_answer:
            return Fate.NO_ANSWER
        return Fate.OTHER_OWNER if drawn < crash + no_answer + other_owner else Fate.GOES_WELL

    return fate


# What happens


def _play(work: Workload, steps: Steps, forgets: Forgets, *, is_reference: bool = False) -> Outcome:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        service = Service(Path(directory), work.plan)
        service.handler.away_until.update(work.away_until)
        service.handler.never |= work.never
        service.handler.mistakes = Mistakes(work.mistakes, is_foreseen=is_reference)
        service.files = StruckFiles(steps)
        service.around_transport = lambda transport: StruckTransport(transport, steps)
        service.around_storage = lambda storage: StruckStorage(storage, steps)
        run = _SimulatedRun(service, steps, forgets)
        try:
            for phase in work.phases:
                run.live(phase)
            problem = run.end()
        except (ResequencerError, AssertionError, KeyError, ValueError, IndexError) as error:
            problem = f"the worker died: {type(error).__name__}: {error}"
        finally:
            steps.armed = False
            service.kill()
        struck = (steps.crashes, steps.strikes, steps.count, tuple(steps.names))
        facts = tuple(service.told_as_facts)
        return Outcome(
            tuple(service.notifications), tuple(service.dead), *struck, problem, run.remembered, service.forgotten, facts
        )


class _SimulatedRun:
    """A worker that is restarted after each exit, in the same directory, while the clock stands still."""

    def __init__(self, service: Service, steps: Steps, forgets: Forgets) -> None:
        self.remembered = Remembered(service.plan.retention_ms)
        self._service = service
        self._steps = steps
        self._forgets = forgets
        self._is_alive = False
        self._exits = 0
        self._forgets_at = steps.random.randint(2, 12)

    def live(self, phase: Phase) -> None:
        service, armed = self._service, self._steps.armed
        self._steps.armed = armed and not phase.is_calm
        if phase.is_outage and self._steps.random.random() < _DIES_IN_AN_OUTAGE:
            self._die()
        service.clock.advance(phase.advance_ms)
        self.remembered.passed(phase.advance_ms)
        for partition, line in phase.lines:
            service.put(line, partition=partition)
            self.remembered.came(partition, value_of(line))
        while not self._is_through():
            self._die()
            self._forget()
        self._steps.armed = armed

    def end(self) -> str | None:
        """Drain. Return what is wrong with the end of the run, or None.

        A worker that read everything again needs more time. Nothing is lost from now on.
        """
        self._forgets_at = 0
        for _ in range(0 if self._forgets is Forgets.NOTHING else 10):
            self.live(Phase(25_000, (), is_outage=False))
        waiting = self._service.report_units().oldest
        kept = 0 if waiting else self._let_all_expire()
        while not self._has_stopped():
            self._die()
            self.live(Phase(0, (), is_outage=False))
        if waiting:
            return f"still waiting: {waiting}"
        return f"{kept} units are still kept though nothing came for long" if kept else None

    def _let_all_expire(self) -> int:
        """Let all units expire, if the retention is short. Return how many are left.

        No fault happens meanwhile, because a restart would go back to the clock of the last commit.
        """
        retention_ms = self._service.plan.retention_ms
        if retention_ms > LONGEST_RETENTION_MS:
            return 0
        self._steps.armed = False
        for _ in range(retention_ms // STEP_MS + 3):
            self.live(Phase(STEP_MS, (), is_outage=False))
        self._steps.armed = True
        return self._service.kept_units()

    def _has_stopped(self) -> bool:
        try:
            self._service.stop()
        except Crash:
            return False
        return True

    def _is_through(self) -> bool:
        try:
            if not self._is_alive:
                self._is_alive = True
                self._service.start()
            self._service.run(_MAX_CYCLES, expires=True)
            while not self._owns_all():
                # A partition that was lost in the last two cycles: its deadlines are due at this phase's time, too.
                self._service.run(_MAX_CYCLES, expires=True)
        except Crash:
            return False
        return True

    def _owns_all(self) -> bool:
        files = len(list((self._service.directory / "in").glob("partition-*.jsonl")))
        return len(self._service.cycle.partitions.owned) == files

    def _die(self) -> None:
        armed, self._steps.armed = self._steps.armed, False
        self._service.kill()
        self._steps.armed, self._is_alive = armed, False

    def _forget(self) -> None:
        self._exits += 1
        if self._exits != self._forgets_at or self._forgets is Forgets.NOTHING:
            return
        if self._forgets is Forgets.DATABASE:
            self._service.forget_database()
        else:
            positions = self._service.directory / "out" / "positions.json"
            if positions.exists():
                positions.write_bytes(positions.read_bytes()[:-20])


def replay_command(seed: int, forgets: Forgets = Forgets.NOTHING) -> str:
    return f"PYTHONPATH=tests:. .venv/bin/python tests/harness/crashes/simulation.py {seed} {forgets}"


if __name__ == "__main__":
    result = simulate(int(sys.argv[1]), Forgets(sys.argv[2] if len(sys.argv) > 2 else "crashes"))
    print(
        *result.trace,
        f"{result.crashes} crashes, {result.strikes} strikes in {result.steps} steps",
        result.problem or "all is well",
        sep="\n",
    )
    sys.exit(result.problem is not None)
