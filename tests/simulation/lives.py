"""A deterministic simulation of one to three workers on Kafka and a shared storage: one seed gives all that befalls them.

Whatever happens, what leaves must be what leaves when nothing happens. Replay a seed by hand with

    PYTHONPATH=tests:. .venv/bin/python -m simulation.lives SEED [crashes | database] [--fault NAME]
"""

from __future__ import annotations

import json
import sys
from random import Random
from typing import NamedTuple

from crash_simulation import Forgets, Outcome, Phase, Workload, judged, workload
from service_under_test import Dead, Told
from simulation.fake_broker import Stored
from simulation.world import DEAD_LETTERS, NOTIFICATIONS, World, put

from connectors.file_lines import Line, decode_line
from domain.errors import ResequencerError

_TURNS = 12


def simulate(seed: int, forgets: Forgets = Forgets.NOTHING, expected: Outcome | None = None) -> Outcome:
    """One life; `problem` of the outcome says what is wrong with it."""
    work = workload(seed)
    expected = expected or reference(seed)
    random = Random(f"lives {seed} {forgets}")
    world = World(seed, work.plan, workers=random.choice((1, 2, 2, 3)))
    outcome = _lived(world, work, random, forgets)
    return judged(outcome, expected, forgets) if world.wrong is None else outcome._replace(problem=world.wrong)


def reference(seed: int) -> Outcome:
    """What leaves when nothing happens to a single worker."""
    work = workload(seed)
    world = World(seed, work.plan, workers=1)
    return _lived(world, work, None, Forgets.NOTHING)


def _lived(world: World, work: Workload, random: Random | None, forgets: Forgets) -> Outcome:
    world.handler.away_until.update(work.away_until)
    world.handler.never |= work.never
    problem = None
    with world.patched():
        try:
            problem = _phases(world, work, random, forgets)
        except (ResequencerError, AssertionError, KeyError, ValueError, IndexError) as error:
            problem = f"a worker died: {type(error).__name__}: {error}"
        finally:
            for each in world.workers:
                each.die()
    told = tuple(_told(each) for each in world.broker.decided(NOTIFICATIONS))
    dead = tuple(_dead(each) for each in world.broker.decided(DEAD_LETTERS))
    return Outcome(told, dead, world.crashes, len(world.faults), world.steps, tuple(world.faults), problem)


class _Forgetting(NamedTuple):
    """The phases in which the storage is backed up, and goes back to that; None for neither."""

    backup_at: int | None = None
    forgets_at: int | None = None

    @classmethod
    def drawn(cls, random: Random, phases: int) -> _Forgetting:
        forgets_at = random.randrange(phases - 5)
        return cls(random.randrange(forgets_at + 1) if random.random() < 0.7 else None, forgets_at)


def _phases(world: World, work: Workload, random: Random | None, forgets: Forgets) -> str | None:
    """Why the life may not end like this, if so."""
    is_forgetting = random is not None and forgets is Forgets.DATABASE
    forgetting = _Forgetting.drawn(random, len(work.phases)) if random and is_forgetting else _Forgetting()
    for at, phase in enumerate(work.phases):
        if problem := _begin(world, phase, retries=bool(work.away_until)):
            return problem
        if at == forgetting.backup_at:
            world.keep_backup()
        if random is not None:
            world.live(_TURNS)
        if at == forgetting.forgets_at:
            world.forget()
        if problem := world.calm():
            return problem
    for _ in range(10 if is_forgetting else 0):
        world.clock.advance(25_000)
        if problem := world.calm():
            return problem
    waiting = [unit for each in world.memory.partitions.values() for unit in each.waiting]
    return f"still waiting: {waiting}" if waiting else None


def _begin(world: World, phase: Phase, *, retries: bool) -> str | None:
    """Time goes by, then lines come.

    An attempt that is due and a record that comes at the same instant may be taken in either order, for a poll may bring nothing
    though something is there. Where there are retries, they come one after the other.
    """
    if phase.is_outage:
        for each in world.workers:
            each.die()
    world.clock.advance(phase.advance_ms)
    if retries and (problem := world.calm()):
        return problem
    for partition, line in phase.lines:
        put(world, partition, _stored(line))
        if world.gaps.random() < 0.1:
            put(world, partition, None)
    return None


def _stored(line: bytes) -> Stored:
    decoded = decode_line(line)
    return Stored(decoded.key, decoded.value, decoded.headers) if isinstance(decoded, Line) else Stored(None, line, ())


def _told(record: Stored) -> Told:
    headers = dict(record.headers)
    value = json.loads(record.value or b"")
    incomplete = headers.get("incomplete")
    return Told(
        "",
        (record.key or b"").decode(),
        headers["notification-id"].decode(),
        value["sequence"],
        tuple(value["data"]),
        None if incomplete is None else incomplete.decode(),
        "late" in headers,
        "possible-duplicate" in headers,
    )


def _dead(record: Stored) -> Dead:
    headers = dict(record.headers)
    return Dead(
        headers["dead-letter-source-position"].decode(),
        headers["dead-letter-reason"].decode(),
        record.value or b"",
        headers["dead-letter-error"].decode(),
        "possible-duplicate" in headers,
    )


def replay_command(seed: int, forgets: Forgets = Forgets.NOTHING, fault: str = "") -> str:
    words = f"PYTHONPATH=tests:. .venv/bin/python -m simulation.lives {seed} {forgets}"
    return f"{words} --fault {fault}" if fault else words


if __name__ == "__main__":
    result = simulate(int(sys.argv[1]), Forgets(sys.argv[2] if len(sys.argv) > 2 else "crashes"))
    print(
        *result.trace,
        f"{result.crashes} crashes, {result.strikes} misfortunes in {result.steps} steps",
        result.problem or "all is well",
        sep="\n",
    )
    sys.exit(result.problem is not None)
