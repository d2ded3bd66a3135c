"""Some delivery workers, an operator and a receiver on one ledger: every step is drawn from the seed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from harness.crashes.points import Crash
from harness.simulated_delivery.model_receiver import ModelReceiver
from harness.simulated_delivery.plan import LIVE, NAME, Plan
from harness.simulated_delivery.struck_ledger import Struck, StruckDatabase
from harness.simulated_delivery.watch import Watch
from harness.wild_clock import WildClock

from notification_service.delivery.core.answers import outcome_of
from notification_service.delivery.core.jobs import Claim
from notification_service.delivery.core.published_events import PublishedMark
from notification_service.delivery.errors import IntakeLost, JobRefused
from notification_service.delivery.event_file import EventFile
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.intake import Intake, Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.ledger.services import ServiceEvents
from notification_service.delivery.settings import Step

_Found = TypeVar("_Found")
_CRASH, _AWAY, _LOST = 0.03, 0.03, 0.03
_CRASH_OF_ORDER = 0.2
_AT_COMMIT, _MAX_STATEMENTS = 0.4, 30
_PORTION = 5
BEGIN_MS = 1_000_000_000


class Late(NamedTuple):
    """An outcome that its worker has from `at` on."""

    result: ClaimResult
    at: int


class World:
    """`trace` tells what happened. Faults happen while it is `armed`."""

    def __init__(self, plan: Plan, random: Random, clock: WildClock, directory: Path) -> None:
        self.plan, self.random = plan, random
        self.clock = clock
        self.database = StruckDatabase(directory, clock.of_process())
        self.ledger = self._opened()
        self.receiver = ModelReceiver(plan, random)
        self.watch = Watch(self.database.file, plan, clock)
        self.events = directory / "job-events.jsonl"
        self.trace: list[str] = []
        self.crashes = self.other_faults = 0
        self.armed = True
        self.pauses = False
        """Whether the operator pauses the receiver, too, and has rows called now."""
        self._owners = 0
        self.workers = [Worker(self) for _ in range(plan.workers)]
        self._operator = Operator(self)

    def _opened(self) -> Ledger:
        return Ledger(self.database, [(NAME, self.plan.receiver)], self.plan.retention_ms, 60_000)

    def _begin_anew(self) -> None:
        """End all processes; what they know of leases and pauses ends with them."""
        self.database.clock = self.clock.of_process()
        self.ledger = self._opened()
        for worker in self.workers:
            worker.begin()

    def close(self) -> None:
        self.watch.close()
        self.database.close()

    def new_owner(self) -> str:
        self._owners += 1
        return f"w{self._owners}"

    def note(self, text: str) -> None:
        self.trace.append(f"{self.clock.now() - BEGIN_MS}: {text}")

    def live(self) -> None:
        """Let one step happen, and some time pass."""
        if changed := self.clock.change(self._begin_anew):
            self.note(changed)
        drawn = self.random.random()
        if drawn < self.plan.changes:
            self.note(self.receiver.change(self.clock.now()))
        elif drawn < self.plan.changes + self.plan.orders:
            self._operator.act()
        else:
            self.random.choice(self.workers).act()
        self.clock.pass_time(self._passing())

    def calm_down(self) -> None:
        """From now on nothing breaks. Workers go on until nothing changes before time passes."""
        self.armed = False
        self.clock.calm_down()
        self.receiver.heal()
        self._operator.resume()
        for source in self.plan.sources.values():
            source.visible = len(source.records)
        for job in self.plan.sources:
            if job != LIVE and job not in self.watch.gone_jobs:
                self.ledger.start_job(job, NAME, job, "ann")

    def calm_turn(self) -> None:
        """Let each worker do everything that it can at this instant; then time passes."""
        for worker in self.workers:
            worker.do_all()
        self.clock.pass_time(2_500)

    def decide_for_held_units(self) -> None:
        for unit, _ in self.ledger.held(NAME, 100):
            self._operator.release(unit)

    def ask(
        self,
        what: str,
        call: Callable[[], _Found],
        results: Sequence[ClaimResult] = (),
        *,
        crash: float = _CRASH,
        repeats: bool = True,
    ) -> _Found:
        """Return the answer of a call of the ledger, which is repeated until there is one; look at the ledger after each try.

        Raises:
            Crash: The caller dies, before the call has taken effect, after it, or between two transactions of it.
            Struck: There is no answer, and the call is not one that `repeats`: its caller begins anew.
        """
        while True:
            drawn = self.random.random() if self.armed else 1.0
            after = None if self.random.random() < _AT_COMMIT else self.random.randrange(_MAX_STATEMENTS)
            if drawn < crash:
                self.database.strike(Crash(what), after)
            elif drawn < crash + _AWAY:
                self.database.strike(Struck("struck"), after)
            try:
                found = call()
                if drawn < crash and self.database.strike(None):
                    raise Crash(f"after {what}")
                if crash + _AWAY <= drawn < crash + _AWAY + _LOST:
                    raise Struck("the answer is lost")
            except Crash:
                self.crashes += 1
                self.note(f"dies at {what}, " + ("at the commit" if after is None else f"after {after} statements"))
                raise
            except Struck as error:
                self.other_faults += 1
                self.note(f"{what}: {error}")
                if not repeats:
                    raise
                continue
            finally:
                self.database.strike(None)
                self.watch.look(self.clock.now(), results)
            return found

    def publish_events(self) -> None:
        """Append the events that are missing; one that dies meanwhile leaves any part of them."""
        tears = self.armed and self.random.random() < 0.3
        log = _TearingLog(self) if tears else self.ledger.events
        self.ask("publishing", EventFile(self.events, log).publish)

    def _passing(self) -> int:
        drawn = self.random.random()
        if drawn < 0.6:
            return self.random.randint(0, 50)
        if drawn < 0.88:
            return self.random.randint(100, 1_000)
        return self.random.randint(1_000, 8_000) if drawn < 0.98 else self.random.randint(15_000, 45_000)


class _TearingLog(ServiceEvents):
    """Dies before it notes anything, and leaves any part of what was written."""

    def __init__(self, world: World) -> None:
        super().__init__(world.ledger.database, world.ledger.service.id, world.plan.retention_ms, world.ledger.enter)
        self._world = world
        self._before = world.events.stat().st_size if world.events.exists() else 0

    def note(self, mark: PublishedMark) -> None:
        written = self._world.events.stat().st_size - self._before
        if written > 0:
            with self._world.events.open("r+b") as file:
                file.truncate(self._before + self._world.random.randrange(written + 1))
        raise Crash(f"torn events up to {mark.number}")


class Worker:
    """A delivery worker: what it has read, claimed and heard is lost when it dies, and another one begins in its place."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.begin()

    def begin(self) -> None:
        self._owner = self._world.new_owner()
        self._reads: list[tuple[Intake, Portion]] = []
        self._known: dict[str, Intake] = {}
        self._claims: list[Claim] = []
        self._outcomes: list[Late] = []

    def act(self) -> None:
        """Do one step, or die."""
        random = self._world.random
        weights = {self._read: 2, self._claim: 3, self._call: 6, self._finish: 4, self._keep_up: 0.6}
        step = random.choices(list(weights), list(weights.values()))[0]
        try:
            step()
            if self._world.armed and random.random() < 0.01:
                self._world.crashes += 1
                raise Crash("between two steps")
        except Crash as death:
            self._world.note(f"{self._owner} dies: {death}")
            self.begin()

    def do_all(self) -> None:
        """Do everything that there is to do at this instant."""
        for _ in self._world.plan.sources:
            self._read()
            self._read()
        self._keep_up()
        for step in self._world.plan.receiver.steps.all:
            while True:
                self._claim_for(step)
                if not self._claims:
                    break
                while self._claims:
                    self._call()
                self._finish()
        self._finish()
        self._world.ask("retention", self._world.ledger.delete_expired)

    def _read(self) -> None:
        """Read a portion of an open job, or write one that was read before."""
        world = self._world
        if self._reads:
            intake, portion = self._reads.pop(0)
            try:
                new = world.ask("taking in", lambda: world.ledger.take_in(intake, NAME, portion), repeats=False)
            except (IntakeLost, Struck) as error:
                world.note(f"{self._owner} reads again: {error}")
                return
            self._known[intake.job] = intake.behind(portion)
            world.note(f"{self._owner} takes in {new} rows of {intake.job}" + (", its last" if portion.seals else ""))
            return
        world.ask("the live job", lambda: world.ledger.ensure_live(NAME, LIVE))
        jobs = world.ledger.open_jobs(NAME)
        job, _ = world.random.choice(jobs)
        known = self._known.pop(job, None)
        opened = world.ask("opening", lambda: world.ledger.open_intake(job, self._owner, known))
        if opened is None:
            return
        source = world.plan.sources[job]
        if not source.seals and world.random.random() < 0.7:
            source.visible = min(len(source.records), source.visible + 2)
        self._reads.append((opened, source.read(opened.positions, world.random.randint(1, _PORTION))))

    def _claim(self) -> None:
        self._claim_for(self._world.random.choice(self._world.plan.receiver.steps.all))

    def _claim_for(self, step: Step) -> None:
        world = self._world
        wanted = min(4, world.plan.receiver.concurrency) - len(self._claims) - len(self._outcomes)
        if wanted <= 0:
            return
        claimed = world.ask("claiming", lambda: world.ledger.claim(NAME, step, self._owner, wanted))
        for claim in claimed.claims:
            world.note(f"{self._owner} claims {_told(claim)}")
        self._claims += claimed.claims

    def _call(self) -> None:
        """Make a call. Its answer may come when its lease is over: nothing but the worker's memory knows of it until then."""
        if not self._claims:
            return
        world, now = self._world, self._world.clock.now()
        claim = self._claims.pop(0)
        world.watch.called(claim)
        reply = world.receiver.call(claim, now)
        outcome = outcome_of(world.plan.receiver, claim.step, reply, claim.tries, world.random.random())
        is_late = world.armed and world.random.random() < 0.04
        self._outcomes.append(Late(ClaimResult(claim, outcome), now + (25_000 if is_late else 0)))
        world.note(f"{self._owner} calls for {_told(claim)}: {reply}" + (", heard late" if is_late else ""))

    def _finish(self) -> None:
        world = self._world
        heard = [each for each in self._outcomes if each.at <= world.clock.now()]
        if not heard:
            return
        heard = heard[: world.random.randint(1, len(heard))] if world.armed else heard
        self._outcomes = [each for each in self._outcomes if each not in heard]
        results = [each.result for each in heard]
        finished = world.ask("finishing", lambda: world.ledger.finish(NAME, results), results)
        written = ", ".join(f"{each.claim.row} {type(each.outcome).__name__}" for each in results)
        world.note(f"{self._owner} writes {written}" + (f"; {finished.refused} refused" if finished.refused else ""))

    def _keep_up(self) -> None:
        world = self._world
        world.ask("going on", lambda: world.ledger.go_on(NAME))
        world.publish_events()
        world.ledger.end_long_pauses(NAME)
        world.watch.look(world.clock.now())
        if world.random.random() < 0.3:
            world.ask("retention", world.ledger.delete_expired)


class Operator:
    """Gives orders now and then. One who dies in the midst leaves an order half done."""

    def __init__(self, world: World) -> None:
        self._world = world

    def act(self) -> None:
        ledger, random = self._world.ledger, self._world.random
        job = random.choice([each for each in self._world.plan.sources if each != LIVE])
        held = ledger.held(NAME, 100)
        drawn = random.random()
        try:
            if self._world.pauses and random.random() < 0.4:
                self._pause_or_hurry()
            elif held and drawn < 0.4:
                self.release(random.choice(held)[0])
            elif drawn < 0.5 and job not in self._world.watch.gone_jobs:
                self._order(f"start {job}", lambda: ledger.start_job(job, NAME, job, "ann"))
            elif drawn < 0.82:
                self._retry(random.choice([*self._world.plan.sources]), with_late=random.random() < 0.4)
            elif drawn < 0.88:
                self._order("open the gate", lambda: ledger.open_gate(NAME))
            else:
                self._order(f"cancel {job}", lambda: ledger.cancel_job(job))
        except Crash:
            return
        except JobRefused as error:
            self._world.note(str(error))

    def release(self, unit: str) -> None:
        self._world.watch.deciding.add(unit)
        try:
            self._order(f"release {unit}", lambda: self._world.ledger.release_unit(NAME, unit))
        finally:
            self._world.watch.deciding.discard(unit)

    def resume(self) -> None:
        if self._world.watch.is_paused:
            self._order("resume", lambda: self._world.ledger.resume(NAME))
            self._world.watch.is_paused = False

    def _pause_or_hurry(self) -> None:
        world, random, ledger = self._world, self._world.random, self._world.ledger
        if random.random() < 0.5:
            rows = [None, *(each.row for each in ledger.waiting(NAME, 20))]
            row = random.choice(rows)
            world.watch.hurry(row)
            self._order(f"retry row {row} now", lambda: ledger.retry_now(NAME, row))
            return
        is_paused = world.watch.is_paused
        try:
            if is_paused:
                self._order("resume", lambda: ledger.resume(NAME))
            else:
                self._order("pause", lambda: ledger.pause(NAME, "ann", "a test"))
        except Crash:
            # Nothing but the ledger says whether the order came through.
            world.watch.is_paused = ledger.gates()[0].pause is not None
            raise
        except JobRefused:
            pass  # It came through, and its answer was lost.
        world.watch.is_paused = not is_paused

    def _retry(self, job: str, *, with_late: bool) -> None:
        watch = self._world.watch
        watch.retrying = (job, with_late)
        watch.late_wanted |= {job} if with_late else set()
        try:
            self._order(f"retry {job}, late: {with_late}", lambda: self._world.ledger.retry_failed(job, with_late=with_late))
        finally:
            watch.retrying = None

    def _order(self, what: str, call: Callable[[], object]) -> None:
        self._world.note(f"the operator: {what}")
        self._world.ask(what, call, crash=_CRASH_OF_ORDER)


def _told(claim: Claim) -> str:
    return f"row {claim.row} ({claim.notification_id}, {claim.step}, epoch {claim.epoch})"
