"""One to three whole workers with a region each, over simulated servers and one storage, in one thread, by one seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path
from random import Random

from harness.service_under_test import FakeClock, Plan
from simulation.injected_faults import InjectedFaults
from simulation.reading import SourcedTeller
from simulation.regions.files import forget_positions, written
from simulation.regions.queues import KEPT, WINDOW, Consumer, Queues
from simulation.regions.sinks import Fences, Left, SinkServer
from simulation.regions.sources import PARTITIONS, Leases, Log
from simulation.regions.watched_memory import WatchedMemory
from simulation.regions.worker import RegionWorker
from simulation.shared_storage import Backup

from resequencer.record import Partition

_MAX_STATE = KEPT + WINDOW
_HAVE_SHORT_TRANSACTIONS, _MAX_AT_ONCE = 0.5, 3


class SourceKind(StrEnum):
    KAFKA = "kafka"
    FILES = "files"
    QUEUE = "queue"

    @property
    def is_queue(self) -> bool:
        return self is SourceKind.QUEUE

    @property
    def remembers(self) -> bool:
        return self is SourceKind.KAFKA


FENCES: Mapping[str, Fences | None] = {"mqtt": None, "kafka": Fences.EPOCH, "jms": Fences.NUMBER, "xms": None}
"""The servers of sinks, and what each does against earlier owners. `file` is real."""


class RegionWorld:
    """`opened` has the token under which a slot opened a partition last, `taken` what was taken from a queue under a token, by
    offset. `gives_back_late` is how likely a consumer that is gone gives its messages back late.

    `history` has the messages whose units are stored, `lost` those that the storage has forgotten and that were
    acknowledged, before or by an owner that does not know it yet.
    `joined_at` is how much was committed when a sink was added. `is_reset` is how likely a region is reset before or in a cycle,
    `resets` how often that happened. `is_set_back` is how likely it is reset to its initial state before a cycle.
    """

    def __init__(self, seed: int, plan: Plan, kind: SourceKind, sinks: Sequence[str], workers: int, directory: Path) -> None:
        self.random = Random(f"region {seed}")
        self.makes_at_once = seed % 4 == 3
        self.injected_faults = InjectedFaults(self.random)
        self.plan = plan
        self.kind = kind
        self.sink_names = tuple(sinks)
        self.directory = directory
        self.clock = FakeClock()
        self.handler = SourcedTeller(self.clock)
        self.memory = WatchedMemory(self.is_taken)
        self.log, self.queues = Log(), Queues()
        self.servers = {name: SinkServer.empty(fences) for name, fences in FENCES.items()}
        if self.random.random() < _HAVE_SHORT_TRANSACTIONS:
            self.servers[self.random.choice(sorted(self.servers))].max_at_once = _MAX_AT_ONCE
        self.leases = Leases(workers)
        self.workers = [RegionWorker(self, slot) for slot in range(workers)]
        self.coming: deque[tuple[int, bytes]] = deque()
        self.turn = self.takeovers = self.losses = self.resets = 0
        self.is_reset = self.is_set_back = 0.0
        self.turned_away = self.random.choice((0.0, 0.02, 0.1))
        self.gives_back_late = 0.0
        self.opened: dict[tuple[int, Partition], str] = {}
        self.taken: dict[str, dict[int, str]] = {}
        self.taking: dict[tuple[int, Partition], dict[int, str]] = {}
        self.history: dict[str, str] = {}
        self.wrong: str | None = None
        self.joined_at: dict[str, int] = {}
        self.has_other_sinks = False
        self.lost: set[str] = set()
        self._opened_before_loss: set[str] = set()
        self._late_links: list[Consumer] = []
        self._tokens = count(1)
        self._backup = Backup(self.memory)
        self._history_backup: dict[str, str] = {}

    def token(self) -> str:
        return f"token-{next(self._tokens)}"

    def slots(self) -> Sequence[RegionWorker]:
        return self.workers

    # What happens

    def live(self, turns: int) -> None:
        """Run so many stretches of work of any worker, with faults."""
        self.injected_faults.armed = True
        for _ in range(turns):
            self.turn += 1
            self._befall()
            self.turn = max(self.turn, min(each.stands_until for each in self.workers))
            self.random.choice([each for each in self.workers if not each.stands_still]).go_on()
            if self.turn % 8 == 0 and not self.coming and self._is_all_done():
                break
        self.injected_faults.armed = False

    def calm(self, rounds: int = 400) -> str | None:
        """Send all lines, and let all workers continue without faults until nothing moves. Return why this does not end."""
        quiet = 0
        self.send([self.coming.popleft() for _ in range(len(self.coming))])
        for _ in range(rounds):
            moved = [worker.go_on() for worker in self.workers]
            self._give_back()
            quiet = 0 if any(moved) or not self._is_all_done() else quiet + 1
            if quiet == 2:
                return None
        return f"not quiet after {rounds} rounds: {[each.words() for each in self.workers]}"

    def send(self, lines: Sequence[tuple[int, bytes]]) -> None:
        for number, line in lines:
            (self.queues if self.kind.is_queue else self.log).send(PARTITIONS[number], line)

    def throw_out(self, member: str) -> None:
        """Give the partitions of a worker that stands still to others; the broker closes its links."""
        for partition in self.leases.of_slot(int(member)):
            self._move(partition)
        source = self.workers[int(member)].source
        if (links := getattr(source, "links", None)) is not None and self.random.random() < 0.7:
            self.lose_links(links())

    def lose_links(self, links: Sequence[Consumer]) -> None:
        """Close the links, now or, if the broker does not notice it yet, later."""
        for each in links:
            if self.random.random() < self.gives_back_late:
                self._late_links.append(each)
            else:
                self._close(each)

    def kill_all(self) -> None:
        for each in self.workers:
            each.die()

    def change_sinks(self, names: Sequence[str]) -> None:
        """Start all workers again with other sinks."""
        self.kill_all()
        self.injected_faults.note(f"the sinks are now {', '.join(names)}")
        for each in set(names) - set(self.sink_names):
            self.joined_at[each] = len(self.memory.committed)
        self.sink_names, self.has_other_sinks = tuple(names), True

    def keep_backup(self) -> None:
        self._backup, self._history_backup = Backup(self.memory), dict(self.history)

    def forget(self) -> None:
        """Restore the storage's backup."""
        partitions = self.random.choice((PARTITIONS, PARTITIONS[:1], PARTITIONS[1:]))
        self._backup.restore(self.memory, partitions)
        kept = {each for each, at in self._history_backup.items() if at in map(str, partitions)}
        self.history = {each: at for each, at in self.history.items() if at not in map(str, partitions) or each in kept}
        self.lost |= self.queues.acknowledged.keys() - self.history.keys()
        self._opened_before_loss |= set(self.opened.values())
        self.memory.forgotten(partitions)
        self.losses += 1
        self.injected_faults.note(f"the storage forgets {', '.join(map(str, partitions))}")

    def lose_marker(self, name: str) -> None:
        """Delete the markers of a sink, while no worker runs."""
        self.kill_all()
        self.injected_faults.late.clear()
        if name == "file":
            forget_positions(self.directory)
        else:
            self.servers[name].markers.clear()
        self.losses += 1
        self.injected_faults.note(f"the markers of {name} are deleted")

    def left_through(self, name: str) -> list[Left]:
        return written(self.directory) if name == "file" else self.servers[name].left

    def is_taken(self, partition: Partition, token: str, offsets: range, state: str) -> None:
        """Note which messages a commit has taken."""
        if not self.kind.is_queue:
            return
        taken = self.taken.get(token, {})
        for offset in offsets:
            if (each := taken.get(offset)) is None:
                continue
            if each in self.history:
                self.wrong = self.wrong or f"{each} is taken twice into {partition}"
            self.history[each] = str(partition)
        if (ids := state.count('"') // 2) > _MAX_STATE:
            self.wrong = self.wrong or f"the state of the source has {ids} ids"

    def draws_a_reset(self, why: str, is_set_back: bool = False) -> bool:
        likely = self.is_set_back if is_set_back else self.is_reset
        if not likely or not self.injected_faults.armed or self.random.random() >= likely:
            return False
        self.resets += 1
        self.injected_faults.note(why)
        return True

    def is_acknowledged(self, token: str, ids: Collection[str]) -> None:
        """Note what is lost because an owner acknowledges what it took before the storage forgot it."""
        if token in self._opened_before_loss:
            self.lost |= set(ids) - self.history.keys()

    def _befall(self) -> None:
        drawn = self.random.random
        if drawn() < 0.1:
            self.injected_faults.let_one_arrive()
        if drawn() < 0.05:
            self._move(self.random.choice(PARTITIONS))
        if drawn() < 0.1:
            self._give_back(0.5)
        if drawn() < 0.3 and self.coming:
            self.send([self.coming.popleft()])
        standing = [each for each in self.workers if each.stands_still]
        if standing and drawn() < self.injected_faults.dangers.crash:
            worker = self.random.choice(standing)
            self.injected_faults.crash(worker.slot, "where it stands")
            worker.die()

    def _move(self, partition: Partition) -> None:
        slot = self.random.randrange(len(self.workers))
        self.leases.move(partition, slot)
        self.takeovers += 1
        self.injected_faults.note(f"{partition} goes to worker {slot}")

    def _give_back(self, likely: float = 1.0) -> None:
        links, self._late_links = self._late_links, []
        for each in links:
            if self.random.random() < likely:
                self._close(each)
            else:
                self._late_links.append(each)

    def _close(self, link: Consumer) -> None:
        link.is_cut = True
        self.queues.give_back(link)

    def _is_all_done(self) -> bool:
        owned = [each for worker in self.workers for each in worker.owned()]
        return (
            not any(worker.is_midway or worker.has_something_due for worker in self.workers)
            and sorted(each.partition for each in owned) == list(PARTITIONS)
            and all(self._is_read(each.partition, each.read_to) for each in owned)
            and not any(each.unpublished for each in owned)
        )

    def _is_read(self, partition: Partition, offset: int) -> bool:
        if self.kind.is_queue:
            return not self.queues.messages[partition]
        return not self.log.unread(partition, offset)
