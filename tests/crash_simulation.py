"""A deterministic simulation of the worker on files and SQLite: one seed gives a workload and where the worker is struck.

Whatever happens, what leaves must be what leaves when nothing happens. Replay a seed by hand with

    .venv/bin/python tests/crash_simulation.py SEED [crashes | database | positions]
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from crash_points import Crash, Fate, Fates, Steps, StruckFiles, StruckStorage, StruckTransport
from faltering import Mistakes, Place, drawn_mistakes
from service_under_test import BEGINNING, Dead, Plan, Service, Told, envelope_line
from told_marks import find_wrong_mark

from domain.errors import ResequencerError
from guardian.roster import RosterSettings
from resequencer.settings import ResequencerSettings

_MOST_CYCLES = 3_000
_PARTS = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION")


class Forgets(StrEnum):
    """What is lost once beside the worker."""

    NOTHING = "crashes"
    DATABASE = "database"
    POSITIONS = "positions"


class Phase(NamedTuple):
    """The clock moves on, lines come (by partition), and the worker runs until nothing moves; in an outage it was down then."""

    advance_ms: int
    lines: tuple[tuple[int, bytes], ...]
    is_outage: bool


class Workload(NamedTuple):
    """What comes in, and how the handler fares: it is away for these ids until then, and never tells those.

    Where `mistakes` are, our own code fails; in a reference it says that it does. What `needs_server` is told by a server that
    is `server_away` for a while.
    """

    plan: Plan
    phases: tuple[Phase, ...]
    away_until: Mapping[str, int]
    never: frozenset[str]
    mistakes: Mapping[str, Place] = {}
    needs_server: frozenset[str] = frozenset()
    server_away: range = range(0)


class Outcome(NamedTuple):
    """What came out, whether it may be, and how the worker was struck on the way."""

    told: tuple[Told, ...]
    dead: tuple[Dead, ...]
    crashes: int
    strikes: int
    steps: int
    trace: tuple[str, ...] = ()
    problem: str | None = None


def workload(seed: int, most_units: int = 7) -> Workload:
    random = Random(f"workload {seed}")
    strategy = random.choice(("SEQUENCE", "SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001"))
    arrivals: list[tuple[int, bytes]] = []
    identities: list[str] = []
    for unit in range(random.randint(3, most_units)):
        partition = random.randint(0, 1)
        lines, ids = _unit(random, f"uow-{unit}", strategy)
        arrivals += [(partition, line) for line in lines]
        identities += ids
    arrivals = _disordered(random, arrivals)
    for _ in range(random.randint(0, 3)):
        arrivals.insert(random.randint(0, len(arrivals)), (random.randint(0, 1), random.choice(_GARBAGE)))
    plan = Plan(
        strategy,
        batch_size=500,
        resequencer=ResequencerSettings(stash_limit=random.choice((2, 4, 1_000))),
        roster=RosterSettings(stash_bytes=random.choice((500, 1 << 20))),
        rotate_bytes=Random(f"rotation {seed}").choice((None, 1, 1_000)),
        portion_bytes=Random(f"portions {seed}").choice((1, 3_000, 16 << 20)),
    )
    away, never = {}, frozenset[str]()
    if random.random() < 0.6:
        away = {each: BEGINNING + random.randint(0, 40_000) for each in identities if random.random() < 0.1}
        never = frozenset(each for each in identities if random.random() < 0.04)
    else:
        # What is tried again meets a poll in the middle of its batches only where there are any.
        plan = msgspec.structs.replace(plan, batch_size=random.choice((1, 3)))
    mistakes = drawn_mistakes(Random(f"mistakes {seed}"), identities)
    return Workload(plan, tuple(_phases(random, arrivals)), away, never, mistakes)


def reference(work: Workload) -> Outcome:
    """What leaves when nothing happens."""
    return _play(work, Steps(lambda _: Fate.GOES_WELL, Random(0)), Forgets.NOTHING, is_reference=True)


def simulate(seed: int, forgets: Forgets = Forgets.NOTHING, expected: Outcome | None = None) -> Outcome:
    """One life of many deaths; `problem` of the outcome says what is wrong with it."""
    work = workload(seed)
    expected = expected or reference(work)
    random = Random(f"fates {seed} {forgets}")
    outcome = judged(_play(work, Steps(random_fates(random), random), forgets), expected, forgets)
    return outcome if forgets is not Forgets.NOTHING else with_true_marks(outcome, work)


def crash_at(work: Workload, step: int, expected: Outcome) -> Outcome:
    """One crash, at the step of this number."""
    steps = Steps(lambda number: Fate.CRASH if number == step else Fate.GOES_WELL, Random(step))
    return judged(_play(work, steps, Forgets.NOTHING), expected, Forgets.NOTHING)


def random_fates(random: Random) -> Fates:
    crash = random.choice((0.01, 0.03, 0.08))
    no_answer = random.choice((0.0, 0.02, 0.1))
    stranger = random.choice((0.0, 0.0, 0.03))

    def fate(step: int) -> Fate:
        if step > 4_000:
            return Fate.GOES_WELL
        drawn = random.random()
        if drawn < crash:
            return Fate.CRASH
        if drawn < crash + no_answer:
            return Fate.NO_ANSWER
        return Fate.STRANGER if drawn < crash + no_answer + stranger else Fate.GOES_WELL

    return fate


def judged(outcome: Outcome, expected: Outcome, forgets: Forgets) -> Outcome:
    if outcome.problem is not None:
        return outcome
    problems = {
        Forgets.NOTHING: _find_difference,
        Forgets.DATABASE: _find_loss,
        Forgets.POSITIONS: _find_difference_but_for_marked_ones,
    }
    return outcome._replace(problem=problems[forgets](outcome, expected))


def with_true_marks(outcome: Outcome, work: Workload) -> Outcome:
    """What leaves when nothing happens may be marked wrongly, too."""
    return outcome._replace(problem=outcome.problem or find_wrong_mark(outcome.told, work.plan.strategy))


# What comes in

_GARBAGE = (
    b"no json at all",
    b'{"key": "k", "value": {"processingContext": {}}}',
    b'{"key": "k", "value-base64": "/wD+"}',
    '{"key": "ü", "value": "kein Umschlag: ü€"}'.encode(),
    b'{"key": "k", "headers": {"schema-version": "9"}, "value": {"flow": "A"}}',
)


def _unit(random: Random, unit: str, strategy: str) -> tuple[list[bytes], list[str]]:
    """Its lines in the order of their making, some lost, some doubled, and the ids of those that were not lost."""
    flows = ("A", "B")[: random.randint(1, 2)]
    numbers: Counter[str] = Counter()
    lines, ids = [], []
    size = random.randint(2, 6)
    lost = random.randint(1, size) if random.random() < 0.3 else None
    for event in range(1, size + 1):
        flow = random.choice(flows)
        numbers[flow if strategy == "STRICT_SEQUENCE" else ""] += 1
        sequence = numbers[flow] if strategy == "STRICT_SEQUENCE" else event
        if event == lost:
            continue
        mds = _PARTS if event == 1 else random.choice(((), ("PAIN_001",)))
        line = envelope_line(unit, sequence, flow, mds=mds)
        lines += [line] * (1 if random.random() < 0.8 else 2)
        ids.append(f"{unit}#{flow}#{sequence}")
        if random.random() < 0.05:
            lines.append(envelope_line(unit, sequence, flow, mds=("CONFLICT",)))
    return lines, ids


def _disordered(random: Random, arrivals: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    window = random.choice((1, 4, 12))
    late = [each for each in arrivals if random.random() < 0.08]
    rest = [each for each in arrivals if each not in late]
    places = sorted(range(len(rest)), key=lambda place: place + random.uniform(0, window))
    return [rest[place] for place in places] + late


def _phases(random: Random, arrivals: Sequence[tuple[int, bytes]]) -> Iterator[Phase]:
    rest = list(arrivals)
    while rest:
        count = random.randint(1, max(1, len(arrivals) // 3))
        is_outage = random.random() < 0.15
        advance_ms = random.choice((30_000, 60_000)) if is_outage else random.choice((0, 700, 3_000, 9_000, 22_000))
        yield Phase(advance_ms, tuple(rest[:count]), is_outage)
        del rest[:count]
    for _ in range(6):
        yield Phase(random.choice((12_000, 25_000)), (), is_outage=random.random() < 0.2)
    # Until then everybody is served.
    yield Phase(600_000, (), is_outage=False)
    for _ in range(4):
        yield Phase(25_000, (), is_outage=False)


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
        life = _Life(service, steps, forgets)
        try:
            for phase in work.phases:
                life.live(phase)
            problem = life.end()
        except (ResequencerError, AssertionError, KeyError, ValueError, IndexError) as error:
            problem = f"the worker died: {type(error).__name__}: {error}"
        finally:
            steps.armed = False
            service.kill()
        struck = (steps.crashes, steps.strikes, steps.count, tuple(steps.names))
        return Outcome(tuple(service.told), tuple(service.dead), *struck, problem)


class _Life:
    """A worker that is started again whenever it died, in the same directory, while the clock stands still."""

    def __init__(self, service: Service, steps: Steps, forgets: Forgets) -> None:
        self._service = service
        self._steps = steps
        self._forgets = forgets
        self._is_alive = False
        self._deaths = 0
        self._forgets_at = steps.random.randint(2, 12)

    def live(self, phase: Phase) -> None:
        service = self._service
        if phase.is_outage:
            self._die()
        service.clock.advance(phase.advance_ms)
        for partition, line in phase.lines:
            service.put(line, partition=partition)
        while not self._is_through():
            self._die()
            self._forget()

    def end(self) -> str | None:
        """Drain; why it may not end like this, if so. Who read everything again needs some time more, and forgets no more."""
        self._forgets_at = 0
        for _ in range(0 if self._forgets is Forgets.NOTHING else 10):
            self.live(Phase(25_000, (), is_outage=False))
        waiting = self._service.survey().oldest
        while not self._has_stopped():
            self._die()
            self.live(Phase(0, (), is_outage=False))
        return f"still waiting: {waiting}" if waiting else None

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
            self._service.run(_MOST_CYCLES)
        except Crash:
            return False
        return True

    def _die(self) -> None:
        armed, self._steps.armed = self._steps.armed, False
        self._service.kill()
        self._steps.armed, self._is_alive = armed, False

    def _forget(self) -> None:
        self._deaths += 1
        if self._deaths != self._forgets_at or self._forgets is Forgets.NOTHING:
            return
        if self._forgets is Forgets.DATABASE:
            self._service.forget_database()
        else:
            positions = self._service.directory / "out" / "positions.json"
            if positions.exists():
                positions.write_bytes(positions.read_bytes()[:-20])


# What may come out


def _find_difference(outcome: Outcome, expected: Outcome) -> str | None:
    marked = [each.identity for each in outcome.told if each.is_possible_duplicate]
    marked += [each.position for each in outcome.dead if each.is_possible_duplicate]
    if marked:
        return f"marked possible-duplicate though nothing was forgotten: {marked}"
    return first_difference(by_unit(outcome.told), by_unit(expected.told), outcome.dead, expected.dead)


def _find_difference_but_for_marked_ones(outcome: Outcome, expected: Outcome) -> str | None:
    """The units' states were kept: once what repeats is left out, nothing differs."""
    told: dict[str, Told] = {}
    for each in outcome.told:
        if each.identity in told and not each.is_possible_duplicate:
            return f"told twice and not marked: {each}"
        told.setdefault(each.identity, each)
    dead: dict[str, Dead] = {}
    for letter in outcome.dead:
        if letter.position in dead and not letter.is_possible_duplicate:
            return f"dead twice and not marked: {letter}"
        dead.setdefault(letter.position, letter)
    return first_difference(by_unit(tuple(told.values())), by_unit(expected.told), tuple(dead.values()), expected.dead)


def _find_loss(outcome: Outcome, expected: Outcome) -> str | None:
    """The units' states are gone: nothing may be lost, and what repeats is marked."""
    known: set[str] = set()
    for each in outcome.told:
        if each.identity in known and not each.is_possible_duplicate:
            return f"told twice and not marked: {each}"
        known.add(each.identity)
    dead_before: set[str] = set()
    for letter in outcome.dead:
        if letter.position in dead_before and not letter.is_possible_duplicate:
            return f"dead twice and not marked: {letter}"
        dead_before.add(letter.position)
        known.add(identity_of(letter))
    wanted = {each.identity for each in expected.told} | {identity_of(letter) for letter in expected.dead}
    return f"lost: {sorted(wanted - known)}" if wanted - known else None


def identity_of(letter: Dead) -> str:
    """By what an envelope is known whether it was told or buried; other records by where they lay."""
    try:
        return str(msgspec.json.decode(letter.value)["processObjects"][0]["uniqueId"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return letter.position


def by_unit(told: Sequence[Told]) -> dict[str, list[tuple[object, ...]]]:
    units: defaultdict[str, list[tuple[object, ...]]] = defaultdict(list)
    for each in told:
        units[each.unit].append(each.content)
    return dict(units)


def first_difference(
    told: Mapping[str, object], expected: Mapping[str, object], dead: Sequence[Dead], expected_dead: Sequence[Dead]
) -> str | None:
    for unit in sorted(told.keys() | expected.keys()):
        if told.get(unit) != expected.get(unit):
            return f"unit {unit}: told {told.get(unit)}, expected {expected.get(unit)}"
    letters, wanted = (sorted((each.position, each.reason, each.value) for each in which) for which in (dead, expected_dead))
    return None if letters == wanted else f"dead letters {letters}, expected {wanted}"


def replay_command(seed: int, forgets: Forgets = Forgets.NOTHING) -> str:
    return f".venv/bin/python tests/crash_simulation.py {seed} {forgets}"


if __name__ == "__main__":
    result = simulate(int(sys.argv[1]), Forgets(sys.argv[2] if len(sys.argv) > 2 else "crashes"))
    print(
        *result.trace,
        f"{result.crashes} crashes, {result.strikes} strikes in {result.steps} steps",
        result.problem or "all is well",
        sep="\n",
    )
    sys.exit(result.problem is not None)
