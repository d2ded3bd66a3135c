"""A worker's slot: a worker that dies is started again in its slot. Its work can be paused in the middle of any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, TypeVar

from greenlet import getcurrent, greenlet
from harness.crashes.points import Crash
from simulation.injected_faults import FOR_LONG, InjectedFaults

Answer = TypeVar("Answer")
_SESSION_TURNS = 6


class Surroundings(Protocol):
    """The world, as a slot sees it. `turn` counts the stretches of work."""

    turn: int
    random: Random
    injected_faults: InjectedFaults

    def slots(self) -> Sequence[Slot]: ...

    def throw_out(self, member: str) -> None:
        """Remove the member from the group, as if it had been silent for a session."""
        ...


class Slot:
    """Before the turn `stands_until` the worker does nothing.

    A subclass says what the worker does in a stretch of work (`_work`), and what is left of it when it dies (`_forget`).
    """

    def __init__(self, surroundings: Surroundings, slot: int) -> None:
        self._surroundings = surroundings
        self.slot = slot
        self._stretch: greenlet | None = None
        self.stands_until = 0

    @property
    def member(self) -> str:
        """The worker's name in the group, empty if it is not a member."""
        raise NotImplementedError

    def _work(self) -> bool:
        raise NotImplementedError

    def _forget(self) -> None:
        raise NotImplementedError

    @property
    def is_midway(self) -> bool:
        """Whether the worker stands still, or waits, in the middle of a cycle."""
        return self._stretch is not None

    @property
    def stands_still(self) -> bool:
        return self._surroundings.turn < self.stands_until

    @property
    def is_unavailable(self) -> bool:
        """Whether the worker stands still until it is called back."""
        return self.stands_until == FOR_LONG

    def go_on(self) -> bool:
        """Continue the current cycle, or run the next one, until it ends, stands still or waits. Return whether it committed."""
        self._stretch = self._stretch or greenlet(self._live)
        has_committed = self._stretch.switch()
        if self._stretch is not None and self._stretch.dead:
            self._stretch, self.stands_until = None, 0
        return bool(has_committed)

    def stand_still(self, turns: int) -> None:
        """Let the other workers continue.

        The group removes the worker if that takes longer than a session. The last available worker never stands still for long.
        """
        if turns == FOR_LONG and all(each.is_unavailable or each is self for each in self._surroundings.slots()):
            turns = _SESSION_TURNS
        self.stands_until = FOR_LONG if turns == FOR_LONG else self._surroundings.turn + turns
        if turns > _SESSION_TURNS:
            self._surroundings.throw_out(self.member)
        getcurrent().parent.switch()

    def wait(self, _: int) -> None:
        """Wait for a server that is away: the other workers continue meanwhile."""
        self.stand_still(1)

    def die(self) -> None:
        """Die as by `kill -9`: the brokers do not notice."""
        stretch, self._stretch, self.stands_until = self._stretch, None, 0
        if stretch is not None and stretch is not getcurrent() and not stretch.dead:
            stretch.throw(Crash("killed where it stood"))
            return
        self._forget()

    def _live(self) -> bool:
        try:
            return self._work()
        except Crash:
            self.die()
            return True

    # What its clients and its storage ask

    def ask(self, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False) -> Answer:
        return self._surroundings.injected_faults.ask(self, name, call, failure, may_come_late=may_come_late)

    def leave_on_its_way(self, call: Callable[[], object]) -> None:
        self._surroundings.injected_faults.leave_on_its_way(call)

    def choose(self, count: int) -> int:
        return self._surroundings.random.randrange(count) if self._surroundings.injected_faults.armed else count - 1
