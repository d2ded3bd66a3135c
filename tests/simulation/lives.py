"""A deterministic simulation of one to three workers on Kafka: one seed gives what comes in and all that befalls them.

Whatever happens, what leaves must be what leaves when nothing happens. Replay a seed by hand with

    PYTHONPATH=tests:. .venv/bin/python -m simulation.lives SEED [crashes | database | positions | none] [--fault NAME]
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from enum import StrEnum
from random import Random
from typing import NamedTuple

from crash_simulation import Forgets, Outcome, Phase, Workload, judged, workload
from msgspec.structs import replace
from simulation.reading import read_outcome
from simulation.without_storage import ahead_characters, judged_without_storage, prepared_without_storage
from simulation.world import World

from domain.errors import ResequencerError

_TURNS = 36
_FAILURES = (ResequencerError, AssertionError, KeyError, ValueError, IndexError, TypeError, AttributeError)


class Life(StrEnum):
    """What may happen beside the death of workers, and where they keep their units."""

    CRASHES = "crashes"
    DATABASE = "database"
    """The storage that they share forgets once."""
    POSITIONS = "positions"
    """The group's positions are reset once."""
    NONE = "none"
    """Each worker has a storage `none` of its own: the source is the store."""

    @property
    def forgets(self) -> Forgets:
        return Forgets(self) if self is not Life.NONE else Forgets.NOTHING


def simulate(seed: int, life: Life = Life.CRASHES, expected: Outcome | None = None) -> Outcome:
    """One life; `problem` of the outcome says what is wrong with it."""
    work = prepared(seed, life)
    expected = expected or reference(seed, life)
    random = Random(f"lives {seed} {life}")
    world = _world(seed, work, life, workers=random.choice((1, 2, 2, 3)))
    outcome = _lived(world, work, random, life)
    if world.wrong is not None:
        return outcome._replace(problem=world.wrong)
    if life is Life.NONE:
        return judged_without_storage(outcome, expected, work, ahead_characters(seed, work))
    return judged(outcome, expected, life.forgets)


def reference(seed: int, life: Life = Life.CRASHES) -> Outcome:
    """What leaves when nothing happens to a single worker."""
    work = prepared(seed, life)
    return _lived(_world(seed, work, life, workers=1), work, None, life)


def prepared(seed: int, life: Life) -> Workload:
    """Some units wait for longer than the idle ones are kept: whoever waits must not expire."""
    work, random = workload(seed), Random(f"prepared {seed}")
    if life is Life.NONE:
        return prepared_without_storage(work, random)
    if life is Life.CRASHES and random.random() < 0.3:
        long = replace(work.plan.resequencer, stash_timeout_ms=200_000)
        return work._replace(plan=replace(work.plan, resequencer=long, retention_ms=150_000))
    return work


def _world(seed: int, work: Workload, life: Life, workers: int) -> World:
    return World(seed, work.plan, workers, ahead_characters(seed, work) if life is Life.NONE else None)


def _lived(world: World, work: Workload, random: Random | None, life: Life) -> Outcome:
    world.handler.away_until.update(work.away_until)
    world.handler.never |= work.never
    with world.patched():
        try:
            problem = _Lived(world, work, random, life).problem()
        except _FAILURES as error:
            problem = f"a worker died: {type(error).__name__}: {error}"
        finally:
            for each in world.workers:
                each.die()
    return read_outcome(world.broker, world.misfortunes)._replace(problem=problem)


class _Losses(NamedTuple):
    """In which phases, and in which half of them, the storage is backed up, goes back to that, and the group is reset."""

    backup_at: int | None = None
    forgets_at: int | None = None
    reset_at: int | None = None
    half: int = 0

    @classmethod
    def drawn(cls, random: Random, phases: int, life: Life) -> _Losses:
        at, half = random.randrange(phases - 5), random.randrange(2)
        if life is Life.POSITIONS:
            return cls(reset_at=at)
        if life is Life.DATABASE:
            backup_at = random.choice((None, at, at, random.randrange(at + 1)))
            return cls(backup_at, at, at if random.random() < 0.1 else None, half)
        return cls()


class _Lived:
    """A life, phase by phase. Nothing happens without `random`."""

    def __init__(self, world: World, work: Workload, random: Random | None, life: Life) -> None:
        self._world = world
        self._work = work
        self._is_struck = random is not None
        self._life = life
        self._losses = _Losses.drawn(random, len(work.phases), life) if random else _Losses()

    def problem(self) -> str | None:
        """Why the life may not end like this, if so."""
        for at, phase in enumerate(self._work.phases):
            if problem := self._live(at, phase):
                return problem
        # Who read everything again needs some time more.
        for _ in range(10 if self._is_struck and self._life is not Life.CRASHES else 0):
            self._world.clock.advance(25_000)
            if problem := self._world.calm():
                return problem
        waiting = self._world.waiting()
        return f"still waiting: {waiting}" if waiting else None

    def _live(self, at: int, phase: Phase) -> str | None:
        """Time goes by and lines come: some at once, then, when nothing is due any more, the others little by little.

        An attempt that is due and a record that comes at the same instant may be taken in either order, for a poll may bring
        nothing though something is there. Where there are retries, they come one after the other.
        """
        world = self._world
        if phase.is_outage:
            world.kill_all()
        if at == self._losses.reset_at:
            world.reset_group()
        world.clock.advance(phase.advance_ms)
        if self._work.away_until and (problem := world.calm()):
            return problem
        half = len(phase.lines) // 2
        world.send(phase.lines[:half])
        if problem := self._pass(at, 0):
            return problem
        world.coming.extend(phase.lines[half:])
        problem = self._pass(at, 1) if half < len(phase.lines) else None
        world.expire()
        return problem

    def _pass(self, at: int, half: int) -> str | None:
        """A while of misfortunes, then calm."""
        world, losses = self._world, self._losses
        if self._is_struck:
            world.live(_TURNS)
            if (at, half) == (losses.backup_at, losses.half):
                world.keep_backup()
                world.live(_TURNS // 2)
            if (at, half) == (losses.forgets_at, losses.half):
                world.forget()
                world.live(_TURNS)
        return world.calm()


def replay_command(seed: int, life: Life = Life.CRASHES, fault: str = "") -> str:
    words = f"PYTHONPATH=tests:. .venv/bin/python -m simulation.lives {seed} {life}"
    return f"{words} --fault {fault}" if fault else words


def main(arguments: list[str]) -> int:
    """Tell the life of a seed."""
    from pytest import MonkeyPatch  # noqa: PT013
    from simulation.catalogue import find_fault

    parser = ArgumentParser("python -m simulation.lives")
    parser.add_argument("seed", type=int)
    parser.add_argument("life", type=Life, nargs="?", default=Life.CRASHES, choices=list(Life))
    parser.add_argument("--fault", type=find_fault)
    options = parser.parse_args(arguments)
    expected = reference(options.seed, options.life)
    with MonkeyPatch().context() as patch:
        if options.fault is not None:
            options.fault(patch)
        outcome = simulate(options.seed, options.life, expected)
    told = f"{outcome.crashes} crashes, {outcome.strikes} misfortunes in {outcome.steps} steps"
    print(*outcome.trace, told, outcome.problem or "all is well", sep="\n")
    return int(outcome.problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
