"""Random faults of the workers' calls to the servers: at each step, and between the steps of all workers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Protocol, TypeVar

import msgspec
from harness.crashes.points import Crash
from kafka import errors

from resequencer.errors import ResequencerError

Answer = TypeVar("Answer")
_STANDS_STILL = (1, 2, 4, 8, 16, 32)
FOR_LONG = 1 << 60
"""More turns than a run has. A worker that stands still for so long continues when it is called back."""

_WHERE_IT_HURTS = frozenset(("open", "committed", "init_transactions", "add_offsets", "produce", "commit", "commit_transaction"))
_HOW_MUCH_MORE_OFTEN = 6
_OF_THE_STORAGE = frozenset(("open", "load", "waiting", "pending", "commit", "half a commit", "expire"))


class Server(StrEnum):
    """The servers that a worker calls."""

    BROKER = "broker"
    STORAGE = "storage"


class Dangers(msgspec.Struct, frozen=True):
    """The probability of each fault at a step; that of `eviction` counts between two stretches of work.

    `long_pause` is the share of the pauses that are `FOR_LONG`. Faults are more likely at steps that change something, or that
    later steps rely on.
    """

    crash: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    pause: float = 0.0
    eviction: float = 0.0
    long_pause: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> Dangers:
        return cls(
            random.choice((0.0, 0.003, 0.02)),
            random.choice((0.0, 0.002, 0.01)),
            random.choice((0.0, 0.002, 0.01)),
            random.choice((0.005, 0.015, 0.05)),
            random.choice((0.0, 0.01, 0.05)),
        )

    @classmethod
    def few(cls, random: Random) -> Dangers:
        """Draw only pauses: no kills and no lost answers. A kill would repair damage that takes long to show."""
        return cls(pause=random.choice((0.0, 0.015, 0.05)))


class Stricken(Protocol):
    """A worker, as the faults see it."""

    slot: int

    def stand_still(self, turns: int) -> None:
        """Let the other workers continue for so many turns. Raises Crash if this worker is killed meanwhile."""
        ...


class Losses(Protocol):
    """The losses of a storage."""

    def look(self, when: str, name: str) -> int:
        """Return for how many turns the worker at this step stands still. Called `before` and `after` each step (`when`)."""
        ...


class InjectedFaults:
    """No fault happens while this is not `armed`. `trace` names the faults in order, `count` is their number.

    `away` is the server that answers no request at the moment, whether armed or not. `late` are requests that their callers gave
    up and that are still on their way. `losses` are the losses of a storage, at the steps where they do the most harm.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.dangers = Dangers.drawn(random)
        self.armed = False
        self.steps = 0
        self.count = 0
        self.crashes = 0
        self.trace: list[str] = []
        self.away: Server | None = None
        self.late: list[Callable[[], object]] = []
        self.losses: Losses | None = None

    def note(self, text: str) -> None:
        self.count += 1
        self.trace.append(f"{self.steps}: {text}")

    def crash(self, slot: int, where: str) -> Crash:
        self.crashes += 1
        self.note(f"worker {slot} dies {where}")
        return Crash(where)

    def ask(
        self, who: Stricken, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False
    ) -> Answer:
        """Return the answer of `call`. If request or answer is lost, raise `failure`, whether or not `call` took effect."""
        if self.away is not None and (self.away is Server.STORAGE) == (name in _OF_THE_STORAGE):
            raise failure
        try:
            if self._is_lost(who, "before", name, self.dangers.lost_request):
                raise failure
        except (Crash, type(failure)):
            if may_come_late:
                self.leave_on_its_way(call)
            raise
        answer = call()
        if self._is_lost(who, "after", name, self.dangers.lost_answer):
            raise failure
        return answer

    def leave_on_its_way(self, call: Callable[[], object]) -> None:
        """Keep a request that its caller gave up; it may still arrive."""
        if self.armed and self.random.random() < 0.5:
            self.late.append(call)

    def let_one_arrive(self) -> None:
        """Run one request that its caller gave up, and drop its answer."""
        if not self.late:
            return
        call = self.late.pop(self.random.randrange(len(self.late)))
        self.note("a late request arrives")
        try:
            call()
        except (errors.KafkaError, ResequencerError):
            return

    def _is_lost(self, who: Stricken, when: str, name: str, likely: float) -> bool:
        if not self.armed:
            return False
        self.steps += 1
        if self.losses is not None and (turns := self.losses.look(when, name)):
            self.note(f"worker {who.slot} stands still for {turns} turns {when} {name}")
            who.stand_still(turns)
        drawn = self.random.random()
        if drawn > 0.97:
            self.let_one_arrive()
        if name in _WHERE_IT_HURTS:
            drawn /= _HOW_MUCH_MORE_OFTEN
        drawn -= self.dangers.crash
        if drawn < 0:
            raise self.crash(who.slot, f"{when} {name}")
        if drawn < likely:
            self.note(f"worker {who.slot} gets no answer {when} {name}")
            return True
        if drawn < likely + self.dangers.pause:
            self.note(f"worker {who.slot} stands still {when} {name}")
            is_long = self.dangers.long_pause > 0 and self.random.random() < self.dangers.long_pause
            who.stand_still(FOR_LONG if is_long else self.random.choice(_STANDS_STILL))
        return False
