"""A deterministic simulation of one to three workers on Kafka: one seed determines the input and all faults.

The output of a run with faults must equal the output of the same run without faults. Replay a seed by hand with

    PYTHONPATH=tests:. .venv/bin/python -m simulation.runs SEED [crashes | database | …] [--fault NAME]
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from enum import StrEnum
from random import Random
from typing import NamedTuple

from harness.crashes.outcomes import Forgets, Outcome, judged, with_true_marks
from harness.faltering import Mistakes
from harness.workloads.absences import LONGEST_RETENTION_MS, STEP_MS, with_absences, without_retention
from harness.workloads.shuffled import Phase, Workload, uncut, workload, workload_of_strategies
from msgspec.structs import replace
from simulation.aimed_losses import AimedLosses
from simulation.clocks import MAX_MS, NO_CLOCK_DANGERS, ClockDangers
from simulation.injected_faults import Dangers
from simulation.reading import find_false_mark, read_outcome
from simulation.simulated_calls import SimulatedCalls, judged_with_calls, prepared_with_calls
from simulation.with_orders import WorldOrders, judged_with_orders
from simulation.with_server_away import judged_with_server_away, prepared_with_server_away
from simulation.with_wild_clocks import judged_with_wild_clocks
from simulation.without_storage import TIGHT_ROOM, done_characters, judged_without_storage, prepared_without_storage
from simulation.world import World

from resequencer.errors import ResequencerError

_TURNS = 40
_MAX_UNITS = 16
_HAVE_FEW_DANGERS = 0.3
_HAVE_SHORT_TRANSACTIONS, _MAX_AT_ONCE = 0.3, 3
_HAVE_ABSENCES = 0.4
_LONG_PAUSES = 0.2
_HAVE_DAMAGED_BATCHES, _ARE_DAMAGED = 0.3, 0.1
_STRATEGIES_OF_FIVE = 4
_AGES_MS = 1 << 30
_FAILURES = (ResequencerError, AssertionError, KeyError, ValueError, IndexError, TypeError, AttributeError)


class SimulatedRun(StrEnum):
    """What may happen besides the exits of workers, and where workers keep their units."""

    CRASHES = "crashes"
    DATABASE = "database"
    """The storage that the workers share forgets."""
    POSITIONS = "positions"
    """The group's positions are reset."""
    CLOCKS = "clocks"
    """The workers' clocks are set forward and back, and handlers are slow."""
    SERVERS = "servers"
    """Handlers call a server that is away for a while."""
    ORDERS = "orders"
    """Operators give orders; in every third run the storage forgets, too."""
    STRATEGIES = "strategies"
    """The strategy is PREVIOUS or WINDOW, or its numbers begin with 0 or with any."""
    CALLS = "calls"
    """The handler waits: its calls take time, fail or hang. Some have orders, wild clocks, a server away, or storage `none`."""
    NONE = "none"
    """Each worker has a storage `none` of its own: the source is the store."""

    @property
    def forgets(self) -> Forgets:
        return Forgets(self) if self in (SimulatedRun.DATABASE, SimulatedRun.POSITIONS) else Forgets.NOTHING


def simulate(seed: int, run: SimulatedRun = SimulatedRun.CRASHES, expected: Outcome | None = None) -> Outcome:
    """Do one run. `problem` of the outcome is what is wrong with the run."""
    work = prepared(seed, run)
    expected = expected or reference(seed, run)
    random = Random(f"lives {seed} {run}")  # Another label would give every seed of the catalogue another run.
    world = _world(seed, work, run, workers=random.choice((1, 2, 2, 3)))
    if run is SimulatedRun.CALLS:
        SimulatedCalls(seed, world)
    if run is SimulatedRun.ORDERS or (run is SimulatedRun.CALLS and seed % 3 == 0 and work.plan.storage != "none"):
        world.orders = WorldOrders(seed, world.broker)
    outcome = _done(world, work, random, run)
    if world.wrong is not None:
        return outcome._replace(problem=world.wrong)
    return _judged(outcome, expected, work, world, seed, run)


def _judged(outcome: Outcome, expected: Outcome, work: Workload, world: World, seed: int, run: SimulatedRun) -> Outcome:
    if run is SimulatedRun.CALLS:
        return judged_with_calls(outcome, expected, work, world)
    if run is SimulatedRun.NONE:
        return judged_without_storage(outcome, expected, work, done_characters(seed, work))
    if run is SimulatedRun.CLOCKS:
        return judged_with_wild_clocks(outcome, expected, work)
    if run is SimulatedRun.SERVERS:
        return judged_with_server_away(outcome, expected, work)
    if world.orders is not None:
        return judged_with_orders(outcome, expected, world.orders)
    outcome = judged(outcome, expected, run.forgets)
    return with_true_marks(outcome, work) if run in (SimulatedRun.CRASHES, SimulatedRun.STRATEGIES) else outcome


def reference(seed: int, run: SimulatedRun = SimulatedRun.CRASHES) -> Outcome:
    """Return the output of a single worker without faults, where no unit is ever forgotten and no turn is cut."""
    work = uncut(without_retention(prepared(seed, run)))
    return _done(_world(seed, work, run, workers=1), work, None, run)


def prepared(seed: int, run: SimulatedRun) -> Workload:
    random, absences = Random(f"prepared {seed}"), Random(f"absences {seed}")
    if run is SimulatedRun.STRATEGIES or (run is SimulatedRun.CALLS and seed % 5 == _STRATEGIES_OF_FIVE):
        work = workload_of_strategies(seed, _MAX_UNITS)
    else:
        work = workload(seed, random.choice((4, _MAX_UNITS)) if run is SimulatedRun.NONE else _MAX_UNITS)
    if run is SimulatedRun.CALLS:
        return prepared_with_calls(work, random)
    if absences.random() < _HAVE_ABSENCES:
        work = with_absences(work, absences, transactions_hang=True)
    if run is SimulatedRun.NONE:
        return prepared_without_storage(work, random)
    if run is SimulatedRun.SERVERS:
        return prepared_with_server_away(work, random)
    if run in (SimulatedRun.CLOCKS, SimulatedRun.ORDERS):  # With small polls, orders wait for unread records.
        return work._replace(plan=replace(work.plan, batch_size=random.choice((1, 1, 3, 500))))
    return work


def _has_absences(work: Workload) -> bool:
    return work.plan.retention_ms <= LONGEST_RETENTION_MS


def _world(seed: int, work: Workload, run: SimulatedRun, workers: int) -> World:
    characters = done_characters(seed, work) if work.plan.storage == "none" else None
    has_wild_clocks = run is SimulatedRun.CLOCKS or (run is SimulatedRun.CALLS and seed % 3 == 1 and characters is None)
    world = World(seed, work.plan, workers, characters, _clock_dangers(work) if has_wild_clocks else NO_CLOCK_DANGERS)
    if Random(f"at once {seed}").random() < _HAVE_SHORT_TRANSACTIONS:
        world.broker.max_at_once = _MAX_AT_ONCE
    damaged = Random(f"spoiled {seed}")
    if damaged.random() < _HAVE_DAMAGED_BATCHES:
        world.broker.is_damaged = lambda _: world.injected_faults.armed and damaged.random() < _ARE_DAMAGED
    few = Random(f"few {seed} {run}")
    if run is not SimulatedRun.CRASHES and few.random() < _HAVE_FEW_DANGERS:
        world.injected_faults.dangers = Dangers.few(few)
    if _has_absences(work):
        world.injected_faults.dangers = replace(world.injected_faults.dangers, long_pause=_LONG_PAUSES)
    return world


def _clock_dangers(work: Workload) -> ClockDangers:
    """Each jump of a clock forward may count as ten seconds. If jumps were frequent, nothing would have to be remembered."""
    return ClockDangers(jump=0.02, passing=0.05) if _has_absences(work) else ClockDangers(jump=0.3)


def _done(world: World, work: Workload, random: Random | None, run: SimulatedRun) -> Outcome:
    world.handler.away_until.update(work.away_until)
    world.handler.never |= work.never
    world.handler.needs_server, world.handler.server_away = work.needs_server, work.server_away
    world.handler.mistakes = Mistakes(work.mistakes, is_foreseen=random is None)
    with world.patched():
        try:
            problem = _Finished(world, work, random, run).problem()
        except _FAILURES as error:
            problem = f"a worker died: {type(error).__name__}: {error}"
        finally:
            for each in world.workers:
                each.die()
    outcome = read_outcome(world.broker, world.injected_faults)
    problem = problem or find_false_mark(world)
    return outcome._replace(problem=problem, remembered=world.remembered, forgotten=world.forgotten)


class _Losses(NamedTuple):
    """In which phases, and in which half of each, the storage is backed up, goes back to its backup, and the group is reset.

    With `is_early` the backup is made before the work of that half. `turns` is the time between a backup and the return to it.
    With `are_aimed` the losses happen at single steps instead.
    """

    backup_at: frozenset[int] = frozenset()
    forgets_at: frozenset[int] = frozenset()
    reset_at: frozenset[int] = frozenset()
    half: int = 0
    is_early: bool = False
    turns: int = 0
    are_aimed: bool = False

    @classmethod
    def drawn(cls, random: Random, phases: int, run: SimulatedRun) -> _Losses:
        at = frozenset(random.randrange(phases - 5) for _ in range(random.randint(1, 3)))
        if run is SimulatedRun.POSITIONS:
            return cls(reset_at=at, half=random.randrange(2))
        if run is SimulatedRun.DATABASE:
            if random.random() < 0.5:
                return cls(are_aimed=True)
            backup_at = random.choice((frozenset(), at, at, frozenset((random.randrange(max(at) + 1),))))
            reset_at = at if random.random() < 0.1 else frozenset[int]()
            return cls(backup_at, at, reset_at, random.randrange(2), random.random() < 0.5, random.choice((4, 10, 20)))
        return cls()


class _Finished:
    """A run, phase by phase. Without `random` it has no faults."""

    def __init__(self, world: World, work: Workload, random: Random | None, run: SimulatedRun) -> None:
        self._world = world
        self._work = work
        self._is_struck = random is not None
        self._run_of = run
        loses = SimulatedRun.DATABASE if run is SimulatedRun.ORDERS and random and random.random() < 1 / 3 else run
        self._losses = _Losses.drawn(random, len(work.phases), loses) if random else _Losses()
        self._aimed: AimedLosses | None = None
        if random is not None and self._losses.are_aimed:
            self._aimed = world.injected_faults.losses = AimedLosses(random, world.keep_backup, world.forget)

    def problem(self) -> str | None:
        """Do the run. Return why its end is wrong, or None."""
        for at, phase in enumerate(self._work.phases):
            if problem := self._live(at, phase):
                return problem
        self._world.call_back()
        # A worker that read everything again needs more time, and so does one that began to wait by a clock that was ahead.
        # Where a partition was paused for long, its deadlines have rested meanwhile: only what waits then gets more time.
        for minute in range(30 if self._is_struck and self._run_of is not SimulatedRun.CRASHES else 0):
            if minute >= 10 and not (self._run_of is SimulatedRun.ORDERS and self._world.waiting()):
                break
            self._world.clock.advance(MAX_MS if self._run_of is SimulatedRun.CLOCKS else 60_000)
            if problem := self._world.calm():
                return problem
        # A worker that stood still until now comes back as a zombie: it does not know yet that it lost its partitions.
        if problem := self._world.calm():
            return problem
        if waiting := self._world.waiting():
            return f"still waiting: {waiting}"
        return None if self._work.plan.registry.idle_timeout_ms > _AGES_MS else self._find_active() or self._forget_all()

    def _find_active(self) -> str | None:
        """Look for units in memory. One may have come there with the last cycle, so that it stops one idle time-out later."""
        self._world.clock.advance(self._work.plan.registry.idle_timeout_ms)
        if problem := self._world.calm():
            return problem
        active = self._world.active()
        return f"{active} units are still in memory" if active else None

    def _forget_all(self) -> str | None:
        """Check, in runs with a short retention, that idle units are forgotten after it."""
        if not _has_absences(self._work):
            return None
        for _ in range(self._work.plan.retention_ms // STEP_MS + 3):
            self._world.clock.advance(STEP_MS)
            if problem := self._world.calm():
                return problem
        kept = self._world.kept_units()
        return f"{kept} units are still kept though nothing came for long" if kept else None

    def _live(self, at: int, phase: Phase) -> str | None:
        """Let time pass and lines come: some at once, then, when nothing is due any more, the others one by one.

        All lines of an outage are there when the outage ends. A due attempt and a record that comes at the same instant may be
        handled in either order, because a poll may return nothing though a record is there. So in workloads with retries the due
        attempts come first, and then the records.
        """
        world = self._world
        self._begin(phase)
        world.clock.advance(phase.advance_ms)
        if self._work.away_until and (problem := self._calm_down()):
            return problem
        all_at_once = phase.is_outage or self._run_of is SimulatedRun.CLOCKS or world.done_characters == TIGHT_ROOM
        at_once = len(phase.lines) if all_at_once else len(phase.lines) // 4
        world.producers.hang(phase.hung)
        world.send(phase.lines[:at_once])
        world.come_back()
        if problem := self._pass(at, 0):
            return problem
        world.coming.extend(phase.lines[at_once:])
        return self._pass(at, 1) if world.coming else None

    def _begin(self, phase: Phase) -> None:
        """Begin the phase: an outage, if it has one, and perhaps the return of workers that stand still.

        With storage `none` each exit restarts the deadlines. So, where the order is judged, the exits must be those of the
        reference.
        """
        judges_exits = self._run_of is SimulatedRun.NONE and self._world.done_characters != TIGHT_ROOM
        if phase.is_outage and self._is_struck and _has_absences(self._work) and not judges_exits:
            self._world.go_out()
        elif phase.is_outage:
            self._world.kill_all()
        if self._is_struck:
            self._world.call_back(0.3)

    def _calm_down(self) -> str | None:
        self._world.come_back()
        return self._world.calm()

    def _pass(self, at: int, half: int) -> str | None:
        """Let a period of faults pass, then calm.

        If positions and storage were lost at once, no trace of the earlier state would be left. So calm comes between the
        two losses.
        """
        world, losses = self._world, self._losses
        if at in losses.reset_at and half == losses.half:
            world.reset_group()
            if at in losses.forgets_at and (problem := world.calm()):
                return problem
        if self._is_struck and not self._work.phases[at].is_calm:
            if self._aimed is not None:
                self._aimed.aim()
            is_backed_up = at in losses.backup_at and half == losses.half
            if not (is_backed_up and losses.is_early):
                world.live(_TURNS)
            if is_backed_up:
                world.keep_backup()
                world.live(losses.turns)
            if at in losses.forgets_at and half == losses.half:
                world.forget()
                world.live(_TURNS)
            if half and self._aimed is not None and self._aimed.forget_at_last():
                world.live(_TURNS)
        return world.calm()


def replay_command(seed: int, run: SimulatedRun = SimulatedRun.CRASHES, fault: str = "") -> str:
    words = f"PYTHONPATH=tests:. .venv/bin/python -m simulation.runs {seed} {run}"
    return f"{words} --fault {fault}" if fault else words


def main(arguments: list[str]) -> int:
    """Print the run of a seed."""
    from pytest import MonkeyPatch  # noqa: PT013
    from simulation.catalogue import find_fault

    parser = ArgumentParser("python -m simulation.runs")
    parser.add_argument("seed", type=int)
    parser.add_argument("run", type=SimulatedRun, nargs="?", default=SimulatedRun.CRASHES, choices=list(SimulatedRun))
    parser.add_argument("--fault", type=find_fault)
    options = parser.parse_args(arguments)
    expected = reference(options.seed, options.run)
    with MonkeyPatch().context() as patch:
        if options.fault is not None:
            options.fault(patch)
        outcome = simulate(options.seed, options.run, expected)
    summary = f"{outcome.crashes} crashes, {outcome.strikes} injected_faults in {outcome.steps} steps"
    print(*outcome.trace, summary, outcome.problem or "all is well", sep="\n")
    return int(outcome.problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
