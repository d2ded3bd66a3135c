"""What actors cost in the service's system base and in Thespian's plain one: `python -m benchmarks.actors [--help]`.

Every figure is measured in a process of its own, for both bases one after the other: the ratios matter. Seconds are CPU time. The
last lines are about the service's base alone: many actors are alive while many more are created and exit in random order.
"""

import argparse
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

from thespian.actors import Actor, ActorAddress, ActorExitRequest, ActorSystem

from guardian.actor_system import make_actor_system

_MB = 1 << 20


class Unit(Actor):
    """Answers every integer, so that one message costs two sends."""

    def receiveMessage(self, message: object, sender: ActorAddress) -> None:  # noqa: N802 - Thespian's name.
        if isinstance(message, int):
            self.send(sender, str(message))


class Crowd(Actor):
    """A parent of units. It runs the functions that it is sent, and ignores all else."""

    def __init__(self) -> None:
        self.units: list[ActorAddress] = []
        self.chance = random.Random(1)

    def receiveMessage(self, message: object, sender: ActorAddress) -> None:  # noqa: N802 - Thespian's name.
        if callable(message):
            message(self)

    def create(self, number: int) -> None:
        self.units.extend(self.createActor(Unit) for _ in range(number))

    def exit_at_random(self, number: int) -> None:
        for _ in range(number):
            place = self.chance.randrange(len(self.units))
            self.units[place], self.units[-1] = self.units[-1], self.units[place]
            self.send(self.units.pop(), ActorExitRequest())

    def ask_everybody(self) -> None:
        for number, unit in enumerate(self.units):
            self.send(unit, number)

    def ask_for_wakeups(self, number: int) -> None:
        for _ in range(number):
            self.wakeupAfter(timedelta(hours=1))


def make_plain_system() -> ActorSystem:
    return ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)


MAKERS = {"plain": make_plain_system, "ours": make_actor_system}


class Stage:
    """One actor system with one crowd, and a stopwatch."""

    def __init__(self, base: str) -> None:
        self.system = MAKERS[base]()
        self.crowd = self.system.createActor(Crowd)

    def do(self, step: Callable[[Crowd], None]) -> float:
        """Return the CPU seconds until no message is left; other processes of the machine do not count."""
        begin = time.process_time()
        self.system.tell(self.crowd, step)
        return time.process_time() - begin

    def create(self, number: int) -> float:
        return self.do(lambda crowd: crowd.create(number))

    def exit_at_random(self, number: int) -> float:
        return self.do(lambda crowd: crowd.exit_at_random(number))


def creations_per_second(base: str, alive: int) -> float:
    return alive / Stage(base).create(alive)


def creations_per_second_with_wakeups_pending(base: str, wakeups: int, creations: int) -> float:
    """Ask each created actor once, because a delivery is what checks for wake-ups."""
    stage = Stage(base)
    stage.do(lambda crowd: crowd.ask_for_wakeups(wakeups))
    seconds = stage.create(creations) + stage.do(Crowd.ask_everybody)
    return creations / seconds


def sends_per_second(base: str, alive: int, times: int) -> float:
    stage = Stage(base)
    stage.create(alive)
    return 2 * alive * times / sum(stage.do(Crowd.ask_everybody) for _ in range(times))


def exits_per_second(base: str, alive: int, exits: int) -> float:
    stage = Stage(base)
    stage.create(alive)
    return exits / stage.exit_at_random(exits)


def bytes_per_actor(base: str, alive: int) -> float:
    stage = Stage(base)
    before = resident_bytes()
    stage.create(alive)
    return (resident_bytes() - before) / alive


def bytes_left_per_dead_actor(base: str, alive: int, gone: int) -> float:
    stage = Stage(base)
    stage.create(alive)
    churn(stage, gone=2 * alive, step=alive)
    before = resident_bytes()
    churn(stage, gone=gone, step=alive)
    return (resident_bytes() - before) / gone


def churn(stage: Stage, gone: int, step: int) -> None:
    """Create as many actors as exit, `step` at a time, so that their number stays the same."""
    for _ in range(gone // step):
        stage.exit_at_random(step)
        stage.create(step)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def population(alive: int, gone: int) -> dict[str, float]:
    stage = Stage("ours")
    before = resident_bytes()
    stage.create(alive)
    step = alive // 10
    churn(stage, gone=alive, step=step)
    settled = resident_bytes()
    begin = time.process_time()
    churn(stage, gone=gone, step=step)
    base = stage.system._systemBase
    return {
        "actors created and gone/s": gone / (time.process_time() - begin),
        "resident MB with all actors alive": (settled - before) / _MB,
        "resident MB more after the churn": (resident_bytes() - settled) / _MB,
        "addresses in the registry beyond the living": len(base.actorRegistry) - alive,
        "messages left in the queue": len(base._pendingSends),
    }


def comparisons(quick: int) -> dict[str, Callable[[str], float]]:
    return {
        "creations/s": partial(creations_per_second, alive=quick),
        "creations and first message/s, 500 wake-ups pending": partial(
            creations_per_second_with_wakeups_pending, wakeups=500, creations=quick // 20
        ),
        "sends/s, queue of 1 000": partial(sends_per_second, alive=1_000, times=quick // 100),
        f"sends/s, queue of {quick}": partial(sends_per_second, alive=quick, times=1),
        f"random exits/s, 1 000 of {quick}": partial(exits_per_second, alive=quick, exits=1_000),
        "resident bytes per living actor": partial(bytes_per_actor, alive=quick),
        "resident bytes left per dead actor": partial(bytes_left_per_dead_actor, alive=1_000, gone=quick),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--compare", type=int, default=20_000, help="actors in the comparisons (default 20000)")
    arguments.add_argument("--alive", type=int, default=100_000, help="actors alive in the population (default 100000)")
    arguments.add_argument("--gone", type=int, default=1_000_000, help="actors that come and go (default 1000000)")
    chosen = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=context) as processes:
        print(f"{'':56}{'plain':>12}{'ours':>12}{'ours/plain':>12}")
        for title, measure in comparisons(chosen.compare).items():
            plain, ours = (processes.submit(measure, base).result() for base in MAKERS)
            ratio = f"{ours / plain:12.2f}" if plain else f"{'-':>12}"
            print(f"{title:56}{plain:12,.0f}{ours:12,.0f}{ratio}", flush=True)
        print(f"\nours with {chosen.alive:,} alive while {chosen.gone:,} come and go")
        for title, figure in processes.submit(population, chosen.alive, chosen.gone).result().items():
            print(f"{title:56}{figure:12,.1f}", flush=True)


if __name__ == "__main__":
    main()
