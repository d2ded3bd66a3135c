"""The guardian: the actor that creates a resequencer per unit of work, and keeps messages for one that is stopping."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace
from thespian.actors import ActorAddress, ActorExitRequest, ActorTypeDispatcher, ChildActorExited, PoisonMessage

from domain.errors import ResequencerError
from guardian.messages import Active, Arm, Decide, Decided, Drop, ListActive, Prepare, Prepared, ReportUnits, Rest, UnitsReport
from guardian.supervision import SUPERVISION, Directive, Failure
from guardian.unit_registry import UnitRegistry, UnitRegistrySettings
from resequencer.actor import Resequencer
from resequencer.batch import Batch
from resequencer.messages import Refused, TakeTurn, TurnsTaken, UnitKey
from resequencer.unit import Wake

_log = logging.getLogger("resequencer.guardian")
_QUESTIONS = (Arm, Drop, Rest, ListActive, Prepare, Decide, ReportUnits)


class Escalated(ResequencerError):
    """A unit failed and cannot go on: the worker ends without committing."""

    def __init__(self, failure: Failure, key: UnitKey, details: str) -> None:
        super().__init__(f"{failure}: unit {key.unit!r} of {key.partition}: {details}")
        self.failure = failure
        self.key = key


class Guardian(ActorTypeDispatcher):
    """Answers the cycle's questions, one at a time. Its unit registry holds the data for its decisions.

    The composition makes a subclass whose class attributes are its dependencies.
    """

    resequencer: ClassVar[type[Resequencer]]
    settings: ClassVar[UnitRegistrySettings]

    def __init__(self) -> None:
        super().__init__()
        self._registry = UnitRegistry(self.settings)
        self._children: dict[UnitKey, ActorAddress] = {}
        self._stopping: dict[str, UnitKey] = {}
        self._kept: dict[UnitKey, list[TakeTurn]] = {}
        self._wakes: Mapping[UnitKey, Wake] = {}
        self._asked_by: ActorAddress | None = None
        self._batch = Batch(0)
        self._broken_by: Exception | None = None
        self._unavailable: frozenset[str] = frozenset()

    def receiveMessage(self, message: object, sender: ActorAddress) -> None:
        """Receive a message. After a failure, raise the same error on each question: the state may be half changed.

        Without this, Thespian would call the failed guardian again.
        """
        if self._broken_by is not None and not isinstance(message, ActorExitRequest):
            if isinstance(message, _QUESTIONS):
                raise self._broken_by
            return
        try:
            super().receiveMessage(message, sender)
        except Exception as error:
            self._broken_by = error
            if self._asked_by is not None:
                self.send(self._asked_by, error)
            raise

    # Questions of the cycle

    def receiveMsg_Arm(self, message: Arm, sender: ActorAddress) -> None:
        for key, waits in message.waiting:
            self._registry.arm(key, waits)
        self.send(sender, message)

    def receiveMsg_Drop(self, message: Drop, sender: ActorAddress) -> None:
        for key in self._registry.drop(message.partition):
            self._stop(key)
        self._wakes = {key: wake for key, wake in self._wakes.items() if key.partition != message.partition}
        self.send(sender, message)

    def receiveMsg_Rest(self, message: Rest, sender: ActorAddress) -> None:
        self._registry.rest(message.partition, message.pauses)
        self.send(sender, message)

    def receiveMsg_Prepare(self, message: Prepare, sender: ActorAddress) -> None:
        dues = self._registry.dues(message.polled_at, message.read_to, message.ends, message.limit, frozenset(message.units))
        for key in dues.stops:
            self._registry.deactivate(key)
            self._stop(key)
        self._wakes = dues.wakes
        unknown = tuple(key for key in dict.fromkeys((*message.units, *dues.wakes)) if key not in self._children)
        self.send(sender, Prepared(unknown, dues.stops))

    def receiveMsg_Decide(self, message: Decide, sender: ActorAddress) -> None:
        """Send out the turns: remainders, units to wake, units with new envelopes, then units with orders.

        They run in this order, one after the other. The share of a turn depends on the turns before it.
        """
        wakes, self._wakes = self._wakes, {}
        self._asked_by, batch = sender, Batch(message.now, self.settings.share_bytes)
        arrivals, orders, snapshots = message.arrivals, message.orders, message.snapshots
        left_over = [key for key, wake in wakes.items() if wake is Wake.REMAINDER]
        keys = dict.fromkeys((*left_over, *wakes, *arrivals, *orders)) if wakes or orders else arrivals
        self._batch, batch.out = batch, len(keys)
        for key in keys:
            woken = (wakes[key],) if key in wakes else ()
            self._pass_on(TakeTurn(key, arrivals.get(key, ()), woken, batch, snapshots.get(key), orders=orders.get(key, ())))
        if not keys:
            self._answer()

    def receiveMsg_ListActive(self, message: ListActive, sender: ActorAddress) -> None:
        del message
        self.send(sender, Active(self._registry.active_units()))

    def receiveMsg_ReportUnits(self, message: ReportUnits, sender: ActorAddress) -> None:
        self.send(
            sender,
            UnitsReport(
                self._registry.active,
                len(self._registry.waits),
                self._registry.stashed,
                self._registry.stashed_bytes,
                self._registry.backlogged,
                tuple(self._registry.longest(message.oldest)),
                self._registry.unavailable,
                self._registry.held,
            ),
        )

    # Messages of the resequencers

    def receiveMsg_TurnsTaken(self, message: TurnsTaken, sender: ActorAddress) -> None:
        batch = message.batch
        if batch is self._batch:
            for turn in batch.turns:
                self._registry.note(turn, batch.now)
            for key in batch.put_off:
                self._registry.put_off(key, batch.now)
            self._answer()

    def receiveMsg_Refused(self, message: Refused, sender: ActorAddress) -> None:
        self._escalate(Failure.STATE, message.key, str(message.error))

    def receiveMsg_PoisonMessage(self, message: PoisonMessage, sender: ActorAddress) -> None:
        turn = message.poisonMessage
        if not isinstance(turn, TakeTurn) or turn.batch is not self._batch:
            return
        failure, key = Failure.CAREFUL_TURN if turn.is_careful else Failure.TURN, turn.key
        if SUPERVISION[failure] is not Directive.TAKE_AGAIN:
            self._escalate(failure, key, str(message.details))
            return
        _log.warning(
            "a turn of unit %s of %s failed and is repeated: each envelope on which it fails becomes a dead letter, "
            "the unit's other envelopes are handled",
            key.unit, key.partition,
            extra={"unit": key.unit, "partition": str(key.partition)},
        )  # fmt: skip
        self.send(self._children[key], replace(turn, is_careful=True))

    def receiveMsg_ChildActorExited(self, message: ChildActorExited, sender: ActorAddress) -> None:
        key = self._stopping.pop(message.childAddress.actorAddressString, None)
        if key is not None:
            for turn in self._kept.pop(key):
                self._send_to_new(turn)

    # Turns and actors

    def _pass_on(self, turn: TakeTurn) -> None:
        child = self._children.get(turn.key)
        if child is not None:
            self.send(child, turn)
        elif turn.key in self._kept:
            self._kept[turn.key].append(turn)
        else:
            self._send_to_new(turn)

    def _send_to_new(self, turn: TakeTurn) -> None:
        child = self._children[turn.key] = self.createActor(self.resequencer)
        self._registry.activate(turn.key)
        self.send(child, turn)

    def _stop(self, key: UnitKey) -> None:
        child = self._children.pop(key, None)
        if child is not None:
            self._stopping[child.actorAddressString] = key
            self._kept[key] = []
            self.send(child, ActorExitRequest())

    def _escalate(self, failure: Failure, key: UnitKey, details: str) -> None:
        """Answer the cycle with a failure. Turns that are still out lead to nothing: the worker ends without a commit."""
        asked_by, self._asked_by, self._batch = self._asked_by, None, Batch(0)
        if asked_by is not None:
            self.send(asked_by, Escalated(failure, key, details))

    def _answer(self) -> None:
        asked_by, self._asked_by = self._asked_by, None
        turns, self._batch = self._batch.turns, Batch(0)
        if asked_by is not None:
            self._tell_of_servers()
            self.send(asked_by, Decided(turns, self._registry.next_wake_at, self._registry.is_held_up))

    def _tell_of_servers(self) -> None:
        """Log once when the first unit begins to wait for a server, and once when no unit waits for it any more."""
        before, self._unavailable = self._unavailable, frozenset(self._registry.unavailable)
        for name in sorted(self._unavailable - before):
            _log.warning("%s is unavailable: units that need it wait and are retried until it answers", name)
        for name in sorted(before - self._unavailable):
            _log.warning("%s: no unit waits for it any more", name)
