"""What befalls workers on their way to the servers, by chance: at each step, and between the steps of anybody."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Protocol, TypeVar

import msgspec
from harness.crashes.points import Crash
from kafka import errors

from domain.errors import ResequencerError

Answer = TypeVar("Answer")
_STANDS_STILL = (1, 2, 4, 8, 16, 32)
FOR_LONG = 1 << 60
"""Turns that never come: whoever stands still for so long goes on when it is called back."""

_WHERE_IT_HURTS = frozenset(("open", "committed", "init_transactions", "add_offsets", "produce", "commit", "commit_transaction"))
_HOW_MUCH_MORE_OFTEN = 6
_OF_THE_STORAGE = frozenset(("open", "load", "waiting", "pending", "commit", "half a commit", "expire"))


class Server(StrEnum):
    """What a worker asks."""

    BROKER = "broker"
    STORAGE = "storage"


class Dangers(msgspec.Struct, frozen=True):
    """How likely each fault is at a step; `eviction` is so between two stretches of work. `long_pause` is the share of the
    pauses that are `FOR_LONG`.

    At steps that change something, or that what follows relies upon, it is more likely.
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
        """Nobody is killed and no answer is lost: the next kill would mend what takes long to do harm."""
        return cls(pause=random.choice((0.0, 0.015, 0.05)))


class Stricken(Protocol):
    """Who can be struck: a worker."""

    slot: int

    def stand_still(self, turns: int) -> None:
        """Let the others go on, for so many turns. Raises Crash if it is killed where it stands."""
        ...


class Losses(Protocol):
    """What a storage loses."""

    def look(self, when: str, name: str) -> int:
        """Called at each step, `when` is before or after it: how many turns whoever is there stands still then."""
        ...


class InjectedFaults:
    """Nothing happens while it is not `armed`. `trace` names what did, in order, `count` says how much it was.

    `away` is the server that answers no request at the moment, whether armed or not. `late` are requests that were given up and
    are still on their way; `losses` are those of a storage, at the steps at which they hurt.
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
        """What `call` answers, if it gets there and its answer gets back; else `failure`, whatever became of it."""
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
        """Nobody waits for it any more; it may arrive all the same."""
        if self.armed and self.random.random() < 0.5:
            self.late.append(call)

    def let_one_arrive(self) -> None:
        """A request that was given up; its answer goes nowhere."""
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
