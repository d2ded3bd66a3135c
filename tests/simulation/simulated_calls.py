"""Runs in which the handler waits: its calls take time beside the worker's thread, fail, or do not end, by one seed.

Time passes meanwhile, so the output is judged as in runs where clocks jump. What may never be is noticed when it happens: a call
that no commit has stored, a second one of a unit beside it, more than the limit, one beside a suspect that must be alone, an
answer of an earlier ownership, and one that came after its time-out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from harness.crashes.outcomes import Outcome
from harness.workloads.shuffled import Workload
from msgspec.structs import replace
from simulation.with_orders import judged_with_orders
from simulation.with_server_away import prepared_with_server_away
from simulation.with_wild_clocks import judged_with_wild_clocks
from simulation.without_storage import TIGHT_ROOM, judged_without_storage, prepared_without_storage

from guardian.calls import Calls, Ended
from resequencer.batch import UnitKey
from resequencer.call import Answer, Call
from resequencer.errors import DependencyUnavailable, TransientError
from resequencer.handler import Handled
from resequencer.record import Partition
from resequencer.storage_port import Commit
from storage.none import Memory

if TYPE_CHECKING:
    from simulation.worker import Worker
    from simulation.world import World

_HAVE_NO_STORAGE, _HAVE_SERVER_AWAY = 0.25, 0.3
_PASSING_MS = (0, 0, 0, 20, 500, 3_000)
_TAKES_MS = (0, 0, 5, 50, 500, 2_000)
_HANG, _HANG_MS, _ARE_DEAF, _FAIL = 0.1, (3_001, 5_000, 70_000), 0.4, 0.05
_ALONE_OF = 16
_NEVER_MS = 1 << 40


def prepared_with_calls(work: Workload, random: Random) -> Workload:
    """Change the workload: some have the storage `none`, some a server that is away; units may leave memory early."""
    if random.random() < _HAVE_NO_STORAGE:
        work = prepared_without_storage(work, random)
        registry = replace(work.plan.registry, idle_timeout_ms=_NEVER_MS)  # More time passes than the workload says.
        return work._replace(plan=replace(work.plan, registry=registry))
    if random.random() < _HAVE_SERVER_AWAY:
        return prepared_with_server_away(work, random)
    registry = replace(work.plan.registry, unit_stash=random.choice((0, 1, 1_000)))
    return work._replace(plan=replace(work.plan, registry=registry))


def judged_with_calls(outcome: Outcome, expected: Outcome, work: Workload, world: World) -> Outcome:
    if work.plan.storage == "none":
        return judged_without_storage(outcome, expected, work, TIGHT_ROOM)
    if world.orders is not None:
        return judged_with_orders(outcome, expected, world.orders)
    return judged_with_wild_clocks(outcome, expected, work)


class WatchedMemory(Memory):
    """Remembers the heads that were ever stored as called: partition, unit, offset, attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.called: set[tuple[Partition, str, int, int]] = set()

    def apply(self, partition: Partition, commit: Commit) -> None:
        super().apply(partition, commit)
        for change in commit.changes:
            head = msgspec.msgpack.decode(change.state)[5]
            if head is not None and len(head) > 10 and head[10]:
                self.called.add((partition, change.unit, head[0], head[1]))


@dataclass
class _UnderWay:
    """A call, when it ends, and whether it ends no earlier if it is cancelled. `epoch` is the ownership in which it began."""

    call: Call
    began_at: int
    ends_at: int
    is_deaf: bool
    epoch: int
    is_cancelled: bool = False


class SimulatedCalls:
    """The calls of all workers of a world."""

    def __init__(self, seed: int, world: World) -> None:
        self.random = Random(f"calls {seed}")
        self.world = world
        self.limit = self.random.choice((1, 2, 64))
        self.memory = WatchedMemory()
        self._runners: dict[Worker, SimulatedRunner] = {}
        world.memory = self.memory
        world.calls = self

    def of(self, worker: Worker) -> Calls:
        """Return the calls of a worker that begins."""
        runner = self._runners[worker] = SimulatedRunner(self, worker)
        timeout_ms = self.world.plan.resequencer.processing_timeout_ms
        return Calls(runner, self.limit, timeout_ms, lambda: self.world.clock.now() / 1_000)

    def let_time_pass(self) -> None:
        self.world.clock.advance(self.random.choice(_PASSING_MS))

    def let_one_end(self) -> None:
        """Let time pass until a call ends."""
        ends = [each.ends_at for runner in self._runners.values() for each in runner.under_way]
        if ends:
            self.world.clock.advance(max(0, min(ends) - self.world.clock.now()))

    def check_answers(self, worker: Worker, answers: Mapping[UnitKey, Answer]) -> None:
        for each in answers.values():
            self._runners[worker].check(each)

    def note_drop(self, worker: Worker, partition: Partition) -> None:
        self._runners[worker].note_drop(partition)

    def forget(self, worker: Worker) -> None:
        self._runners.pop(worker, None)

    def wrong(self, what: str, call: Call) -> None:
        self.world.wrong = self.world.wrong or f"{what}: {call.envelope.event_id}, attempt {call.attempts + 1}"


class SimulatedRunner:
    """Runs the calls of one worker in simulated time."""

    def __init__(self, calls: SimulatedCalls, worker: Worker) -> None:
        self._calls = calls
        self._worker = worker
        self._world = calls.world
        self.under_way: list[_UnderWay] = []
        self._known: dict[int, _UnderWay] = {}
        self._epochs: dict[Partition, int] = {}

    def must_be_alone(self, call: Call) -> bool:
        return crc32(call.envelope.event_id.encode()) % _ALONE_OF == 0

    def start(self, call: Call) -> None:
        self._check_start(call)
        random, now = self._calls.random, self._world.clock.now()
        takes_ms, is_deaf = random.choice(_TAKES_MS), random.random() < _ARE_DEAF
        if not self._world.injected_faults.armed:
            takes_ms = 0
        elif random.random() < _HANG:
            takes_ms = random.choice(_HANG_MS)
        begun = _UnderWay(call, now, now + takes_ms, is_deaf, self._epochs.get(call.key.partition, 0))
        self.under_way.append(begun)
        self._known[id(call)] = begun

    def cancel(self, call: Call) -> None:
        begun = self._known[id(call)]
        begun.is_cancelled = True
        if not begun.is_deaf:
            begun.ends_at = min(begun.ends_at, self._world.clock.now())

    @property
    def has_ended(self) -> bool:
        return any(each.ends_at <= self._world.clock.now() for each in self.under_way)

    def ended(self) -> Sequence[Ended]:
        now = self._world.clock.now()
        over = sorted((each for each in self.under_way if each.ends_at <= now), key=lambda each: each.ends_at)
        self.under_way = [each for each in self.under_way if each.ends_at > now]
        return [Ended(each.call, self._outcome(each), each.ends_at / 1_000) for each in over]

    def wait(self, seconds: float) -> None:
        self._world.clock.advance(round(1_000 * seconds))

    def close(self) -> None:
        self._calls.forget(self._worker)

    def note_drop(self, partition: Partition) -> None:
        self._epochs[partition] = self._epochs.get(partition, 0) + 1

    def check(self, answer: Answer) -> None:
        begun = self._known[id(answer.call)]
        if begun.epoch != self._epochs.get(answer.call.key.partition, 0):
            self._calls.wrong("an answer of an earlier ownership", answer.call)
        took_ms = begun.ends_at - begun.began_at
        if isinstance(answer.outcome, Handled) and took_ms > self._world.plan.resequencer.processing_timeout_ms:
            self._calls.wrong(f"an answer after {took_ms} ms", answer.call)

    def _check_start(self, call: Call) -> None:
        wrong, key, memory = self._calls.wrong, call.key, self._calls.memory
        is_stored = (key.partition, key.unit, call.envelope.offset, call.attempts) in memory.called
        if self._world.plan.storage != "none" and not is_stored:
            wrong("a call began that is not stored", call)
        if not any(each.partition == key.partition for each in self._worker.owned()):
            wrong("a call began in a partition of another worker", call)
        if any(each.call.key == key for each in self.under_way):
            wrong("a second call of a unit began", call)
        if len(self.under_way) >= self._calls.limit:
            wrong(f"more than {self._calls.limit} calls are under way", call)
        if self.under_way and any(self.must_be_alone(each) for each in (call, *(each.call for each in self.under_way))):
            wrong("a suspect is not alone", call)

    def _outcome(self, each: _UnderWay) -> Handled | BaseException:
        call, drawn = each.call, self._calls.random.random()
        if each.is_cancelled and not each.is_deaf:
            return TransientError("cancelled")
        if self._world.injected_faults.armed and drawn < _FAIL:
            return TransientError("the call failed") if drawn < _FAIL / 2 else DependencyUnavailable("another server")
        try:
            return self._world.handler.handle(call.envelope, call.data, call.marks, call.now)
        except Exception as error:
            return error
