"""One to three whole workers over one fake broker and one storage, in one thread, by one seed.

A worker may stand still in the middle of any step while the others continue. The group may remove it meanwhile, and it then
continues as a zombie. It may be killed where it stands still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from random import Random

from harness.crashes.remembered import Remembered
from harness.service_under_test import TOPIC, Plan
from kafka.structs import OffsetAndMetadata, TopicPartition
from simulation.clocks import NO_CLOCK_DANGERS, ClockDangers, WorldClock
from simulation.fakes.broker import FakeBroker
from simulation.fakes.patching import fake_kafka
from simulation.injected_faults import InjectedFaults, Server
from simulation.producers import Producers
from simulation.reading import SourcedTeller, find_false_mark
from simulation.shared_storage import Backup
from simulation.simulated_calls import SimulatedCalls
from simulation.with_orders import WorldOrders
from simulation.worker import DEAD_LETTERS, NOTIFICATIONS, ORDERS, OUTCOMES, Worker

from guardian.actor_gateway import UnitsReport
from guardian.owned_partition import OwnedPartition
from guardian.partition_orders import Pauses, paused_ms
from guardian.takeover import find_metadata
from resequencer.clock import Instant
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits
from storage.none import Memory

INPUT = tuple(TopicPartition(TOPIC, number) for number in range(2))
_UNTIL_HEALED = 1 << 60
_LONGEST_PAUSE_MS = 30_000
_SKEW_MS = 1_000


class World:
    """`may_repeat_below` is where each log ended when the storage forgot last, or when a reset was healed: when the group had a
    position of ours again. `coming` are lines that have not been sent yet, with their partitions. `wrong` is the first invariant
    that broke.

    `orders` are those of operators, in runs that have some, `calls` those of a handler that waits. `turn` counts the stretches of
    work. `clocks` is how clocks are set; if they are set, handlers take time, too. `done_characters` is how many characters a
    position's metadata has for what is done beyond it. `remembered` is what the service had to know all the time. `forgotten`
    counts the units that were idle for long enough.
    """

    def __init__(
        self, seed: int, plan: Plan, workers: int, done_characters: int | None = None, clocks: ClockDangers = NO_CLOCK_DANGERS
    ) -> None:
        self.random = Random(f"world {seed}")
        self.makes_at_once = seed % 4 == 3
        self.injected_faults = InjectedFaults(self.random)
        self.plan = plan
        self.done_characters = done_characters
        self.clocks = clocks
        self.remembered = Remembered(plan.retention_ms, clocks.slack_ms)
        self.forgotten = 0
        self.clock = WorldClock(self.remembered)
        self.handler = SourcedTeller(self.clock)
        if clocks.jump:
            self.handler.takes_ms = self._handling_ms
        topics = {TOPIC: len(INPUT), NOTIFICATIONS: 2, DEAD_LETTERS: 1, ORDERS: len(INPUT), OUTCOMES: len(INPUT)}
        self.broker = FakeBroker(topics, TOPIC)
        self.broker.watch = self._see_position
        self.memory = Memory()
        self.coming: deque[tuple[int, bytes]] = deque()
        self.orders: WorldOrders | None = None
        self.calls: SimulatedCalls | None = None
        self.workers = [Worker(self, slot) for slot in range(workers)]
        self.turn = 0
        self.may_repeat_below = dict.fromkeys(INPUT, 0)
        self.wrong: str | None = None
        self._backup = Backup(self.memory)
        self._tokens = count(1)
        self.producers = Producers(self.broker, self.remembered, Random(f"gaps {seed}"), may_abort=plan.storage != "none")
        self._outages = Random(f"outages {seed}")
        self._at_work = self.workers[0]

    def token(self) -> str:
        return f"token-{next(self._tokens)}"

    # What happens

    def live(self, turns: int) -> None:
        """Run so many stretches of work of any worker, with faults; fewer if there is nothing more to do."""
        self.injected_faults.armed = True
        for _ in range(turns):
            self.turn += 1
            self._befall()
            self.turn = max(self.turn, min(each.stands_until for each in self._awake()))
            self._let_work(self.random.choice([each for each in self.workers if not each.stands_still]))
            if self.turn % 8 == 0 and not self.coming and self._is_all_done():
                break
        self.injected_faults.armed, self.injected_faults.away = False, None

    def calm(self, rounds: int = 400) -> str | None:
        """Send all lines, set all clocks right, and let all workers continue without faults until nothing moves.

        Return why this does not end, or what is wrong at its end, or None.
        """
        quiet = 0
        for each in self.workers:
            each.clock.set(0)
        if self.orders is not None:
            self.orders.resume_all(self.clock.now())
        self.send([self.coming.popleft() for _ in range(len(self.coming))])
        for _ in range(rounds):
            moved = [self._let_work(worker) for worker in self._awake()]
            self._reap_the_dead()
            if self.calls is not None:
                self.calls.let_one_end()
            quiet = 0 if any(moved) or not self._is_all_done() else quiet + 1
            if quiet == 2:
                return self.find_excess()
        return f"not quiet after {rounds} rounds: {[each.words() for each in self.workers]}"

    def kill_all(self) -> None:
        """Kill all workers. None comes back before the group has noticed."""
        for each in self.workers:
            each.die()
        self._reap_the_dead()

    def send(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Send the lines. In a partition with a hanging transaction, some are in it and some after it."""
        self.producers.send(lines)

    def go_out(self) -> None:
        """Begin an outage: all workers are killed, or all stand still, or one of the servers is away."""
        kind = self._outages.choice((*Server, "standing", "dead", "dead"))
        self.injected_faults.note(f"an outage: {kind}")
        if kind == "dead":
            self.kill_all()
        elif kind == "standing":
            for each in self.workers:
                self.throw_out(each.member)
        else:
            self.injected_faults.away = Server(kind)
            self._try_in_vain()

    def come_back(self) -> None:
        """End the outage after all available workers have noticed it."""
        if self.injected_faults.away is not None:
            self._try_in_vain()
        self.injected_faults.away = None

    def call_back(self, likely: float = 1.0) -> None:
        """Call back the workers that stand still for long."""
        for each in self.workers:
            if each.is_unavailable and self._outages.random() < likely:
                self.injected_faults.note(f"worker {each.slot} is back")
                each.stands_until = 0

    def throw_out(self, member: str) -> None:
        """Remove the member from the group, as if it had been silent for a session."""
        if member in self.broker.group.members:
            self.broker.group.remove(member)
            self.injected_faults.note("a worker is thrown out of the group")

    def keep_backup(self) -> None:
        """Keep the state to which `forget` goes back."""
        self._backup = Backup(self.memory)

    def forget(self) -> None:
        """Restore the storage's backup in all partitions or in one. Marks that were set before are judged before."""
        self.wrong = self.wrong or find_false_mark(self)
        partitions = [Partition(*each) for each in INPUT]
        partitions = self.random.choice((partitions, partitions[:1], partitions[1:]))
        self._backup.restore(self.memory, partitions)
        for each in partitions:
            self.may_repeat_below[TopicPartition(*each)] = self.broker.stable_end(TopicPartition(*each))
        self.injected_faults.note(f"the storage forgets {', '.join(map(str, partitions))}")

    def reset_group(self) -> None:
        """Set or delete the group's positions, as an operator does. That is possible only while the group has no members."""
        self.kill_all()
        for each in INPUT:
            end = OffsetAndMetadata(self.broker.stable_end(each), "", -1)
            self.broker.reset(each, self.random.choice((None, OffsetAndMetadata(0, "", -1), end)))
            self.may_repeat_below[each] = _UNTIL_HEALED
        self.injected_faults.note("the group is reset")

    def waiting(self) -> list[str]:
        """Return the units in which something waits, as the workers know them."""
        return [key.unit for _, report_units in self._unit_reports() for key, _ in report_units.oldest]

    def _is_turn_of(self, waits: Waits) -> bool:
        """Whether the unit should have been woken by now.

        Of the units that wait for a server only one tries at a time. When the server is back, the others wait one more pause
        at most.
        """
        if waits.kind is WaitKind.CALL:
            return False  # Nothing is quiet while a call waits.
        return waits.kind is not WaitKind.DEPENDENCY or self.clock.now() >= self.handler.server_away.stop + _LONGEST_PAUSE_MS

    def _max_stashed(self, waits: Waits) -> int:
        settings = self.plan.resequencer
        is_dependent = waits.kind is WaitKind.DEPENDENCY or self.calls is not None
        more = settings.max_attempts if self.calls is not None or not is_dependent else 0
        return (4 if is_dependent else 1) * settings.stash_limit + more

    def find_excess(self) -> str | None:
        """Find what is in memory and should not be, now that all workers are quiet.

        That is: stashes of a worker or a unit beyond their bound, units of another worker's partition, units that should have
        been woken, orders that wait although nothing is unread, and units that wait since an instant in the future.
        """
        for worker, report_units in self._unit_reports():
            if report_units.stashed_bytes > self.plan.registry.stash_bytes:
                return f"{worker.slot} has {report_units.stashed_bytes} bytes of stashes in memory"
            theirs = {key.partition for key, _ in report_units.oldest} - {each.partition for each in worker.owned()}
            if theirs:
                return f"{worker.slot} still knows units of {theirs}"
            full = [key.unit for key, waits in report_units.oldest if waits.stashed > self._max_stashed(waits)]
            if full:
                return f"{worker.slot} has more stashed than may be in {full}"
            pauses = {each.partition: each.orders.pauses for each in worker.owned()}
            overdue = [
                key.unit
                for key, waits in report_units.oldest
                if waits.kind is WaitKind.ORDERED  # All records are read.
                or (_due_at(waits, pauses[key.partition]) <= self.clock.now() and self._is_turn_of(waits))
            ]
            if overdue:
                return f"{worker.slot} has not woken {overdue}"
            late = [key.unit for key, waits in report_units.oldest if waits.since > self.clock.now() + _SKEW_MS]
            if late:
                return f"{worker.slot} waits since an instant that has not come yet in {late}"
        return None

    def active(self) -> int:
        """Count the units with an actor."""
        return sum(report_units.active for _, report_units in self._unit_reports())

    def _unit_reports(self) -> list[tuple[Worker, UnitsReport]]:
        return [(each, each.actors.report_units(oldest=100)) for each in self._awake() if each.actors is not None]

    def kept_units(self) -> int:
        """Count the units in the shared storage, or in the storages of the workers."""
        memories = [self.memory]
        if self.plan.storage == "none":
            memories = list(
                {id(each.store._memory): each.store._memory for worker in self.workers for each in worker.owned()}.values()
            )
        return sum(len(kept.units) for memory in memories for kept in memory.partitions.values())

    def slots(self) -> list[Worker]:
        return self.workers

    def _awake(self) -> list[Worker]:
        return [each for each in self.workers if not each.is_unavailable]

    def _try_in_vain(self) -> None:
        for each in self._awake() * 3:
            self._let_work(each)

    def _let_work(self, worker: Worker) -> bool:
        self._at_work = worker
        return worker.go_on()

    def _befall(self) -> None:
        """Let events happen between two stretches of work."""
        drawn = self.random.random
        if drawn() < 0.1:
            self.injected_faults.let_one_arrive()
        if drawn() < self.injected_faults.dangers.eviction and self.broker.group.members:
            self.throw_out(self.random.choice(sorted(self.broker.group.members)))
        if drawn() < 0.03 and self.broker.transactions:
            self.broker.time_out(self.random.choice(sorted(self.broker.transactions)))
        if drawn() < 0.3 and (consumer := self.random.choice(self.workers).consumer) is not None:
            consumer.hear()
        if drawn() < 0.3 and self.coming:
            self.send([self.coming.popleft()])
        if self.orders is not None:
            waits = [entry for _, report_units in self._unit_reports() for entry in report_units.oldest]
            self.orders.give_one(waits, self.clock.now())
        self._let_time_pass()
        if self.clocks.jump and drawn() < self.clocks.jump:
            worker = self.random.choice(self.workers)
            worker.clock.jump(self.random)
            self.injected_faults.note(f"the clock of worker {worker.slot} is {worker.clock.ahead_ms} ms ahead")
        standing = [each for each in self.workers if each.stands_still]
        if standing and drawn() < self.injected_faults.dangers.crash:
            worker = self.random.choice(standing)
            self.injected_faults.crash(worker.slot, "where it stands")
            worker.die()

    def _let_time_pass(self) -> None:
        """Let time pass, and servers go away and come back. While a server is away, more time passes."""
        if self.calls is not None:
            self.calls.let_time_pass()
        if not self.clocks.passing:
            return
        drawn = self.random.random
        if drawn() < self.clocks.passing:
            self.clock.pass_by(self.random)
        if drawn() < 0.03:
            self.injected_faults.away = self.random.choice(tuple(Server))
        if self.injected_faults.away is not None and drawn() < 0.2:
            self.clock.advance(2 * self.plan.retention_ms)
            self.injected_faults.away = None

    def _handling_ms(self) -> int:
        """Return how long the handler takes: now and then longer than an attempt should."""
        return self.random.choice((0, 0, 0, 20, 4_000)) if self.injected_faults.armed else 0

    def _reap_the_dead(self) -> None:
        """Remove dead workers from the group and time their transactions out."""
        ours = {each.member for each in self.workers}
        for name in sorted(self.broker.group.members.keys() - ours):
            self.broker.group.remove(name)
        for name, transaction in sorted(self.broker.transactions.items()):
            if transaction.is_open:
                self.broker.time_out(name)

    def _is_all_done(self) -> bool:
        awake = self._awake()
        owned = [each for worker in awake for each in worker.owned()]
        return (
            not any(worker.is_midway or worker.has_something_due for worker in awake)
            and len(owned) == len(INPUT)
            and not self.broker.group.is_rebalancing
            and all(each.room == 0 or self._is_read(each) for each in owned)
            and not any(each.unpublished for each in owned)
            and (self.orders is None or all(self.orders.is_read(each) for each in owned))
            and not any(worker.is_calling for worker in awake)
        )

    def _is_read(self, owned: OwnedPartition) -> bool:
        return owned.read_to == self.broker.stable_end(TopicPartition(*owned.partition))

    def _see_position(self, at: TopicPartition, before: OffsetAndMetadata | None, after: OffsetAndMetadata) -> None:
        if self.may_repeat_below[at] == _UNTIL_HEALED and _is_ours(after):
            self.may_repeat_below[at] = self.broker.stable_end(at)
        if before is not None and after.offset < before.offset:
            self.wrong = self.wrong or f"the position of {at} went back from {before.offset} to {after.offset}"
        settled_to = self._settled_to(at)
        if settled_to is not None and after.offset > settled_to:
            self.wrong = self.wrong or f"the position of {at} is {after.offset}, and what is stored ends at {settled_to}"

    def _settled_to(self, at: TopicPartition) -> int | None:
        """Return the next offset in the storage; None if it is unknown: with storage `none`, or after something was forgotten."""
        if self.plan.storage == "none" or self.may_repeat_below[at]:
            return None
        kept = self.memory.partitions.get(Partition(*at))
        return (kept.header.next_offset or 0) if kept is not None else 0

    def patched(self) -> AbstractContextManager[None]:
        """Replace kafka-python's clients by the fakes, within the context."""
        return fake_kafka(self.broker, lambda: self._at_work)


def _is_ours(position: OffsetAndMetadata) -> bool:
    """Whether the position's metadata has the commit that it builds on. Three words of the transport's own come before."""
    return find_metadata(position.metadata.split(" ", 3)[-1]) is not None


def _due_at(waits: Waits, pauses: Pauses) -> Instant:
    """When the unit is to be woken: a deadline rests while its partition is paused."""
    return waits.wakes_at + (paused_ms(pauses, waits.since) if waits.kind is WaitKind.DEADLINE else 0)
