"""Thespian's in-process actor system, without the costs that a daemon cannot have.

Thespian's `simpleSystemBase` keeps the address of a dead actor for ever and pops its queue from the front of a list. It searches
an exiting child among all its siblings, and looks at every pending wake-up before each delivery. It inspects the signature of
an actor's class for each new actor, and leaves dead actors to the cyclic garbage collector. Here the cost of each step does not
depend on the number of actors. Actors see Thespian's behaviour, except for the differences that
docs/decisions/0003-thespian-in-process.md lists. Thespian's own tests check this.
"""

import heapq
import inspect
import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
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

_LOG = logging.getLogger("resequencer.guardian")
_DEAD_LETTER_BOX = "DeadLetterBox"  # Thespian's key for the handler of dead letters.
_MAX_ATTEMPTS = 3  # Thespian's: a message on which an actor raised this often goes back to its sender as poison.


def make_actor_system() -> ActorSystem:
    """Return an actor system that shares nothing with others in the process and leaves the root logger alone.

    Everything runs in the calling thread. `tell` runs until no message is left. `ask` runs until the first answer; messages
    queued behind the answer run with the next call. An answer is kept until it is taken, so an actor must not answer a `tell`:
    the next `ask` would take that answer for its own.
    """
    # A base needs its system at construction, and the system needs a base. So the system gets a placeholder first.
    system = ActorSystem(object(), logDefs=False, transientUnique=True)
    system._systemBase = InProcessSystemBase(system, logDefs=False)
    return system


class _Children(dict[str, ActorAddress]):
    """The addresses of an actor's children, oldest first. A dict: an exit must not search, and addresses are unhashable."""

    __slots__ = ()

    def append(self, address: ActorAddress) -> None:
        self[address.actorAddressString] = address

    def __iter__(self) -> Iterator[ActorAddress]:
        return iter(self.values())


class _Ref(ActorRef):
    """A reference that puts its actor's messages straight into the queue. Thespian's goes through the system and its base."""

    def actor_send(self, toActorAddr: ActorAddress, msg: object) -> None:
        self._system._systemBase._pendingSends.append(PendingSend(self._addr, msg, toActorAddr))


class _Wakeup(NamedTuple):
    due: float  # In seconds of Thespian's own clock. The first field, because the heap orders by it.
    number: int
    address: ActorAddress
    timer: ExpirationTimer
    payload: object


class InProcessSystemBase(ActorSystemBase):
    """A system base for Thespian. Its deliveries, creations, exits and wake-ups cost the same however many actors are alive."""

    def __init__(self, system: ActorSystem, logDefs: Any = None) -> None:
        super().__init__(system, logDefs=logDefs)
        self._pendingSends: deque[PendingSend] = deque()
        self._wakeUps: list[_Wakeup] = []
        self._wakeup_numbers = count()
        # The system gets a message at the exit of every primary actor, and these messages are never read.
        self.actorRegistry[system.systemAddress.actorAddressString].instance.responses = deque(maxlen=0)

    # Deliveries

    def actor_send(self, fromActor: ActorAddress, toActor: ActorAddress, msg: object) -> None:
        # Thespian takes a lock here; an append to a deque needs none.
        self._pendingSends.append(PendingSend(fromActor, msg, toActor))

    def _runSends(self, timeout: timedelta | float | None = None, stop_on_available: Any = None) -> None:
        end = ExpirationTimer(toTimeDeltaOrNone(timeout))
        while not end.view().expired():
            if self._drain(stop_on_available) or not self._sleep_until_wakeup(end):
                return

    def _drain(self, asker: ActorRef | None) -> bool:
        """Deliver what is pending. Return True as soon as the asker has its answer."""
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

    def _sleep_until_wakeup(self, end: ExpirationTimer) -> bool:
        """Sleep until the next wake-up and deliver it. Return False if there is none before `end`."""
        wakeup = self._next_wakeup()
        if end.duration is None or wakeup is None or wakeup > end:
            return False
        time.sleep(wakeup.view().remainingSeconds())
        self._realizeWakeups()
        return True

    def _runSingleSend(self, ps: PendingSend) -> None:
        target = self.actorRegistry.get(ps.toActor.actorAddressString)
        if target is None or ps.attempts >= _MAX_ATTEMPTS or isinstance(ps.msg, ActorSystemMessage):
            super()._runSingleSend(ps)
        else:
            self._callActorWithMessage(target, ps, ps.msg, ps.sender)

    def _callActorWithMessage(self, tgt: ActorRef, ps: PendingSend, msg: object, sndr: ActorAddress) -> None:
        if msg is not ps.msg and isinstance(ps.msg, ChildActorExited):
            return  # A child's exit has no use as poison or as a dead letter.
        try:
            tgt.instance.receiveMessage(msg, sndr)
        except Exception:  # noqa: BLE001 - Thespian promises to report whatever an actor raises to the sender.
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
            self._forget(ref)  # The actor could not be created. A message to the parent is queued.
        return address

    def _killActor(self, tgt: ActorRef, ps: PendingSend) -> None:
        if self.actorRegistry.get(ps.toActor.actorAddressString) is not tgt:
            return  # The target only replaces the actor that was to exit: a handler of dead letters, or the sender of poison.
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
        # Wake-ups that expired together are delivered in the order of the requests, as Thespian does.
        return [(wakeup.address, wakeup.timer, wakeup.payload) for wakeup in sorted(expired, key=_number)]

    def add_wakeups_to_status(self, statusmsg: Thespian_ActorStatus) -> Thespian_ActorStatus:
        statusmsg.addWakeups([(wakeup.address, wakeup.timer) for wakeup in sorted(self._wakeUps, key=_number)])
        return statusmsg


_number = attrgetter("number")


def _is_made_of_nothing(actor_class: type[Actor]) -> bool:
    """Whether the class's constructor takes none of the arguments that Thespian can pass."""
    return not hasattr(actor_class, "actorSystemCapabilityCheck") and _takes_nothing(actor_class.__init__)


@lru_cache(maxsize=256)
def _takes_nothing(constructor: Callable[..., None]) -> bool:
    """Cached, because it takes 20 µs. Classes that are made for a worker share the constructor of their base."""
    return not {"capabilities", "requirements"} & set(inspect.getfullargspec(constructor).args)


def _make_actor(actor_class: type[Actor], *, is_primary: bool) -> Actor | None:
    """Create an actor. Return None for a child that could not be created; its parent gets a message.

    Raises what the constructor raises for a primary actor, and any `ImportError`.
    """
    try:
        return actor_class()
    except Exception as failure:
        _LOG.warning("Actor of class %s could not be created", actor_class, exc_info=True)
        if is_primary or isinstance(failure, ImportError):
            raise
        return None


def _answers_to(asker: ActorRef | None) -> list[object]:
    """Return the list for the answers to an actor. Thespian creates it with the first answer and never replaces it."""
    if asker is None or asker.instance is None:
        return []
    answers: list[object] = asker.instance.__dict__.setdefault("responses", [])
    return answers


def _has_answer(answers: list[object]) -> bool:
    return any(not isInternalActorSystemMessage(answer) for answer in answers)
