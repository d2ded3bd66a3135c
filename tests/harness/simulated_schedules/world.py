"""One to three delivery workers with one schedule: every step is drawn from the seed."""

from itertools import count, islice
from pathlib import Path
from random import Random

from harness.crashes.points import Crash
from harness.simulated_schedules.judge import RECOVERS_MS, SETTLES_MS, Judge, Moment
from harness.simulated_schedules.sinks import LedgerPlace, NoAnswer, Place, StruckSink, TopicPlace
from harness.simulated_schedules.timetable import Timetable
from harness.wild_clock import WildClock

from notification_service.delivery.schedules.keys import NamedKeys
from notification_service.delivery.schedules.runner import ScheduleRunner, TickInFuture
from notification_service.delivery.schedules.settings import KeysSettings, Missed, Schedule, Waiting

_DAY_MS = 86_400_000
_JUMPS_MS = (20_000, 45_000, 300_000, _DAY_MS, 365 * _DAY_MS)
_BEGUN_ANEW, _STOPPED = 0.6, 0.03


class World:
    """`trace` tells what happened. Faults happen while it is `armed`."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random = Random(f"schedules {seed}")
        self.table = Timetable.drawn(random)
        # It begins between two minutes: a schedule has missed nothing before.
        self.clock = WildClock(Random(f"clock {seed}"), self.table.begin_ms + 500, jumps_ms=_JUMPS_MS, begun_anew=_BEGUN_ANEW)
        keys = [f"k{number}" for number in range(random.choice((1, 3, 5)))]
        self.missed = random.choice((Missed.ONCE, Missed.ONCE, Missed.NONE))
        self.keys = NamedKeys(keys)
        self.settings = Schedule(
            self.table.cron, self.table.zone, KeysSettings(tuple(keys), "", "", "{}"), "t", "", "{}", self.missed, Waiting.ALL
        )
        is_ledger = random.random() < 0.3
        self.place: Place = LedgerPlace(directory, self.clock.of_process()) if is_ledger else TopicPlace()
        self.judge = Judge(self.table, keys, self.missed)
        self.trace: list[str] = []
        self.crashes = self.other_faults = 0
        self.armed = False
        self._owners = count(1)
        self.workers = [Worker(self, name) for name in "abc"[: random.choice((1, 2, 2, 3))]]
        self.workers[0].look()

    def moment(self) -> Moment:
        return Moment(self.clock.now(), self.clock.misleads)

    def new_owner(self) -> str:
        return f"w{next(self._owners)}"

    def note(self, text: str) -> None:
        self.trace.append(f"{self.clock.now() - self.table.begin_ms}: {text}")

    def live(self, steps: int) -> None:
        """Let workers look, and die, while time passes: by seconds, up to the next tick, or behind some that all miss."""
        self.armed = True
        for _ in range(steps):
            self._set_clock(is_calm=False)
            self.random.choice(self.workers).look()
            drawn = self.random.random()
            if drawn < 0.6 or self.clock.is_wrong:
                self.clock.pass_time(self.random.randint(200, 2_500))
            elif drawn < 0.75:
                self.clock.pass_time(self.random.randint(3_000, 20_000))
            elif drawn < 0.92:
                self._go_to_next_tick()
            else:
                missed = next(islice(self.table.coming(self.clock.now()), self.random.randrange(3), None))
                self._leap(missed + self.random.randint(0, 130_000) - self.clock.now())
        self.armed = False

    def calm(self, *, is_last: bool) -> None:
        """Let some ticks come while each worker looks each second or two. Except in the last calm the clock may be set."""
        since = self.clock.now()
        may_set = not is_last
        # No leap: the first tick behind a fault may have to wait for the lease of a worker that died.
        self._look_until(max(since, self.table.last(since + RECOVERS_MS)) + RECOVERS_MS, may_set)
        if self.judge.misled_until:
            self._look_until(self.judge.misled_until + SETTLES_MS, may_set=False)
        for number in range(3):
            self._go_to_next_tick()
            self._look_until(self.clock.now() + (12_000 if number else RECOVERS_MS + 12_000), may_set)
        self.judge.check_calm(since, self.clock.now())
        totals = {each.runner.report().total for each in self.workers}
        if totals != {self.judge.requests}:
            self.judge.blame(f"there are {self.judge.requests} requests, and the workers tell of {totals}")

    def stand_still(self, worker: "Worker") -> None:
        """Let the others go on while a worker stands in the middle of a step."""
        for _ in range(self.random.randint(1, 8)):
            self.clock.pass_time(self.random.randint(1_000, 12_000))
            others = [each for each in self.workers if each is not worker and not each.is_looking]
            if others:
                self.random.choice(others).look()

    def _look_until(self, until: int, may_set: bool) -> None:
        while self.clock.now() < until and self.judge.problem is None:
            self.clock.pass_time(self.random.randint(1_000, 2_000))
            if may_set:
                self._set_clock(is_calm=True)
            for each in self.workers:
                each.look()

    def _set_clock(self, *, is_calm: bool) -> None:
        was_wrong = self.clock.is_wrong
        if changed := self.clock.change(None if is_calm else self._begin_anew):
            self.note(changed)
        if self.clock.is_wrong and not was_wrong:
            self.judge.clock_is_set(self.clock.now())
            self._tell()
        if self.clock.misleads:
            self.judge.misled_until = self.clock.now()

    def _begin_anew(self) -> None:
        for each in self.workers:
            each.begin()

    def _go_to_next_tick(self) -> None:
        self._leap(next(self.table.coming(self.clock.now())) - self.random.randint(0, 3_000) - self.clock.now())

    def _leap(self, milliseconds: int) -> None:
        if self.clock.misleads:
            self.judge.misled_until = self.clock.now()
        self.clock.pass_time(max(milliseconds, 0))
        self._tell()

    def _tell(self) -> None:
        """Let each worker tell how far it is: it reads its clock, which it does each second."""
        for each in self.workers:
            each.runner.report()


class Worker:
    """A delivery worker: what it knows is lost when it dies, except for its clock, and another one begins in its place."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self.begin()

    def begin(self) -> None:
        world = self._world
        self._owner, clock = world.new_owner(), world.clock.of_process(self._name)
        sink = StruckSink(world.place.sink(self._owner, clock), self)
        self.runner = ScheduleRunner("s", world.settings, world.keys, sink, clock)
        self.is_looking = False
        self._moment = world.moment()

    def look(self) -> None:
        world = self._world
        self.is_looking, moment = True, world.moment()
        is_stopping = world.armed and world.random.random() < _STOPPED
        try:
            self.runner.look(lambda: is_stopping)
        except TickInFuture:
            world.judge.says_in_future(moment)
        except NoAnswer:
            pass
        except Crash as death:
            world.crashes += 1
            world.note(f"{self._owner} dies {death}")
            self.begin()
        if is_stopping:
            self.begin()
        self.is_looking = False

    def draw(self) -> float:
        return self._world.random.random() if self._world.armed else 1.0

    def note(self, fault: str) -> None:
        self._world.other_faults += 1
        self._world.note(f"{self._owner}: {fault}")

    def stand_still(self) -> None:
        self._world.stand_still(self)

    def will_store(self) -> None:
        self._moment = self._world.moment()

    def has_stored(self) -> None:
        world, before = self._world, self._world.judge.requests
        world.judge.take(world.place.made(), self._moment, world.clock.now())
        world.note(f"{self._owner} has made {world.judge.requests - before}")
