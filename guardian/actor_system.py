"""Thespian's in-process actor system, without the costs that a daemon cannot have.

Thespian's `simpleSystemBase` keeps a dead actor's address for ever, pops its queue from the front of a list, searches an exiting
child among all its siblings, looks at every pending wake-up before every delivery, inspects an actor's signature for each actor
anew, and leaves dead actors to the cyclic garbage collector. Here each step costs the same whatever else is alive. What actors
see is Thespian's, but for the differences that docs/decisions/0003-thespian-in-process.md names; Thespian's tests are the judge.
"""

import heapq
import inspect
import logging
import time
import traceback
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache
from itertools import count
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from thespian.actors import Actor, ActorAddress, ActorSystem, ActorSystemMessage, ChildActorExited
from thespian.system import isInternalActorSystemMessage
from thespian.system.messages.status import Thespian_ActorStatus
from thespian.system.simpleSystemBase import ActorRef, ActorSystemBase, PendingSend
from thespian.system.timing import ExpirationTimer, toTimeDeltaOrNone

_LOG = logging.getLogger(__name__)
_DEAD_LETTER_BOX = "DeadLetterBox"  # Thespian's key for the handler of dead letters.
_MOST_ATTEMPTS = 3  # Thespian's: what raised this often goes back to its sender as poison.


def make_actor_system() -> ActorSystem:
    """An actor system that shares nothing with others in the process and leaves the root logger alone.

    Everything runs in the calling thread: inside `tell` until no message is left, inside `ask` until the first answer (what is
    queued behind it runs with the next call). Answers are kept until somebody takes them, so an actor must not answer one who
    only tells: the next `ask` would take it for its own answer.
    """
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    # A base wants its system at construction and the system a finished base: so the base is exchanged.
    system._systemBase = InProcessSystemBase(system, logDefs=False)
    return system


class _Children(dict[str, ActorAddress]):
    """Addresses of children, oldest first. A dict, because an exit must not search and addresses are unhashable."""

    __slots__ = ()

    def append(self, address: ActorAddress) -> None:
        self[address.actorAddressString] = address

    def __iter__(self) -> Iterator[ActorAddress]:
        return iter(self.values())


class _Ref(ActorRef):
    """What its actor sends goes straight to the queue; Thespian asks the system for its base and the base for the queue."""

    def actor_send(self, toActorAddr: ActorAddress, msg: object) -> None:
        self._system._systemBase._pendingSends.append(PendingSend(self._addr, msg, toActorAddr))


class _Wakeup(NamedTuple):
    due: float  # Seconds of Thespian's own clock; first, because the heap orders by it.
    number: int
    address: ActorAddress
    timer: ExpirationTimer
    payload: object


class InProcessSystemBase(ActorSystemBase):
    """A system base for Thespian whose deliveries, creations, exits and wake-ups do not depend on how many actors are alive."""

    def __init__(self, system: ActorSystem, logDefs: Any = None) -> None:
        super().__init__(system, logDefs=logDefs)
        self._pendingSends: deque[PendingSend] = deque()
        self._wakeUps: list[_Wakeup] = []
        self._wakeup_numbers = count()
        # The system is told of the exit of every primary actor, and nobody ever reads it.
        self.actorRegistry[system.systemAddress.actorAddressString].instance.responses = deque(maxlen=0)

    # Deliveries

    def actor_send(self, fromActor: ActorAddress, toActor: ActorAddress, msg: object) -> None:
        # Thespian takes a lock here; an append to a deque needs none.
        self._pendingSends.append(PendingSend(fromActor, msg, toActor))

    def _runSends(self, timeout: timedelta | float | None = None, stop_on_available: Any = None) -> None:
        end = ExpirationTimer(toTimeDeltaOrNone(timeout))
        while not end.view().expired():
            if self._is_answered_while_draining(stop_on_available) or not self._is_woken_before(end):
                return

    def _is_answered_while_draining(self, asker: ActorRef | None) -> bool:
        pending = self._pendingSends
        answers = _answers_to(asker)
        deliveries = 0
        while pending:
            deliveries += 1
            if 0 < self.procLimit < deliveries:
                raise RuntimeError("Too many sends")
            if self._wakeUps:
                self._realizeWakeups()
            self._runSingleSend(pending.popleft())
            if answers and _has_answer(answers):
                return True
        return False

    def _is_woken_before(self, end: ExpirationTimer) -> bool:
        wakeup = self._next_wakeup()
        if end.duration is None or wakeup is None or wakeup > end:
            return False
        time.sleep(wakeup.view().remainingSeconds())
        self._realizeWakeups()
        return True

    def _runSingleSend(self, ps: PendingSend) -> None:
        target = self.actorRegistry.get(ps.toActor.actorAddressString)
        if target is None or ps.attempts >= _MOST_ATTEMPTS or isinstance(ps.msg, ActorSystemMessage):
            super()._runSingleSend(ps)
        else:
            self._callActorWithMessage(target, ps, ps.msg, ps.sender)

    def _callActorWithMessage(self, tgt: ActorRef, ps: PendingSend, msg: object, sndr: ActorAddress) -> None:
        if msg is not ps.msg and isinstance(ps.msg, ChildActorExited):
            return  # Neither as poison nor as a dead letter is a child's exit of use to anyone.
        try:
            tgt.instance.receiveMessage(msg, sndr)
        except Exception:  # noqa: BLE001 - whatever an actor raises is told to the sender, as Thespian promises.
            ps.attempts += 1
            _LOG.exception("Actor %s failed on a message (attempt %d)", tgt.address, ps.attempts)
            ps.fail_details = traceback.format_exc()
            self._pendingSends.append(ps)

    # Creation and exit

    def _newRefAndActor(
        self,
        actorSystem: ActorSystem,
        parentAddr: ActorAddress,
        actorAddr: ActorAddress,
        actorClass: Any,  # A class, or its full name.
        sourceHash: str | None = None,
        **options: Any,
    ) -> ActorRef:
        if isinstance(actorClass, str) or not _is_made_of_nothing(actorClass):
            ref = super()._newRefAndActor(actorSystem, parentAddr, actorAddr, actorClass, sourceHash, **options)
        else:
            actor = _make_actor(actorClass, is_primary=options.get("isTopLevel", False))
            ref = _Ref(actorSystem, parentAddr, actorAddr, actor, sourceHash)
            if actor:
                actor._myRef = ref
        ref._yung = _Children()
        return ref

    def newActor(self, parentAddr: ActorAddress, *arguments: Any) -> ActorAddress:
        address = super().newActor(parentAddr, *arguments)
        ref = self.actorRegistry.get(address.actorAddressString)
        if ref and not ref.instance:
            self._forget(ref)  # It could not be made; the parent is on its way to hear of it.
        return address

    def _killActor(self, tgt: ActorRef, ps: PendingSend) -> None:
        if self.actorRegistry.get(ps.toActor.actorAddressString) is not tgt:
            return  # The target only stands in for the one that was to exit: a handler of dead letters, or the sender of poison.
        super()._killActor(tgt, ps)
        self._forget(tgt)
        tgt.shutdown()

    def _forget(self, ref: ActorRef) -> None:
        registry = self.actorRegistry
        del registry[ref.address.actorAddressString]
        if registry.get(_DEAD_LETTER_BOX) is ref:
            del registry[_DEAD_LETTER_BOX]
        parent = registry.get(ref.parent.actorAddressString)
        if parent:
            parent._yung.pop(ref.address.actorAddressString, None)

    # Wake-ups

    def _add_wakeup(self, from_actor: ActorAddress, time_period: timedelta | float | None, payload: object) -> None:
        timer = ExpirationTimer(time_period)
        due = inf if time_period is None else timer._time_to_quit
        heapq.heappush(self._wakeUps, _Wakeup(due, next(self._wakeup_numbers), from_actor, timer, payload))

    def _next_wakeup(self) -> ExpirationTimer | None:
        return self._wakeUps[0].timer if self._wakeUps else None

    def _pop_expired_wakeups(self, ct: float) -> list[tuple[ActorAddress, ExpirationTimer, object]]:
        expired = []
        while self._wakeUps and self._wakeUps[0].due <= ct:
            expired.append(heapq.heappop(self._wakeUps))
        # What expired together is delivered in the order in which it was asked for, as Thespian does.
        return [(wakeup.address, wakeup.timer, wakeup.payload) for wakeup in sorted(expired, key=_number)]

    def add_wakeups_to_status(self, statusmsg: Thespian_ActorStatus) -> Thespian_ActorStatus:
        statusmsg.addWakeups([(wakeup.address, wakeup.timer) for wakeup in sorted(self._wakeUps, key=_number)])
        return statusmsg


_number = attrgetter("number")


@lru_cache(maxsize=256)
def _is_made_of_nothing(actor_class: type[Actor]) -> bool:
    """Whether the class wants none of what Thespian can hand to a constructor; looked up once, for it takes 20 µs."""
    wanted = inspect.getfullargspec(actor_class.__init__).args
    return not hasattr(actor_class, "actorSystemCapabilityCheck") and not {"capabilities", "requirements"} & set(wanted)


def _make_actor(actor_class: type[Actor], *, is_primary: bool) -> Actor | None:
    """None stands for a child that could not be made, of which its parent hears; a primary's failure is the caller's."""
    try:
        return actor_class()
    except Exception as failure:
        _LOG.warning("Actor of class %s could not be made", actor_class, exc_info=True)
        if is_primary or isinstance(failure, ImportError):
            raise
        return None


def _answers_to(asker: ActorRef | None) -> list[object]:
    """The list that the answers will be in: Thespian makes it with the first one, and only ever changes it."""
    if asker is None or asker.instance is None:
        return []
    answers: list[object] = asker.instance.__dict__.setdefault("responses", [])
    return answers


def _has_answer(answers: list[object]) -> bool:
    return any(not isInternalActorSystemMessage(answer) for answer in answers)
