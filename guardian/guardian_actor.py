"""The guardian: the actor that creates a resequencer per unit of work, and keeps messages for one that is stopping."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace
from thespian.actors import ActorAddress, ActorExitRequest, ActorTypeDispatcher, ChildActorExited, PoisonMessage

from domain.envelope import DataEnvelope
from domain.errors import ResequencerError
from guardian.messages import Active, Arm, Decide, Decided, Drop, ListActive, Prepare, Prepared, ReportUnits, Rest, UnitsReport
from guardian.output_limit import OutputLimit
from guardian.supervision import SUPERVISION, Directive, Failure
from guardian.unit_registry import UnitRegistry, UnitRegistrySettings
from resequencer.actor import Resequencer
from resequencer.messages import Begin, Refused, TakeTurn, TurnTaken, UnitKey
from resequencer.unit import Decision, Ordered, Wake
from storage.port import Snapshot

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
        self._kept: dict[UnitKey, list[Begin | TakeTurn]] = {}
        self._wakes: Mapping[UnitKey, Wake] = {}
        self._asked_by: ActorAddress | None = None
        self._now = 0
        self._turns: deque[UnitKey] = deque()
        self._arrivals: Mapping[UnitKey, tuple[DataEnvelope, ...]] = {}
        self._snapshots: Mapping[UnitKey, Snapshot] = {}
        self._orders: Mapping[UnitKey, tuple[Ordered, ...]] = {}
        self._output_limit = OutputLimit(self.settings.share_bytes)
        self._outstanding: dict[UnitKey, TakeTurn] = {}
        self._decisions: list[TurnTaken] = []
        self._failure: Escalated | None = None
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
            if type(message) is TurnTaken:
                # This message comes once per unit and poll. To find its method by name takes longer than to run the method.
                self.receiveMsg_Decided(message, sender)
            else:
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
        """Run the turns one after the other: remainders, units to wake, units with new envelopes, then units with orders.

        The share of a turn depends on the turns before it.
        """
        self._asked_by, self._now, self._decisions, self._failure = sender, message.now, [], None
        self._arrivals, self._snapshots, self._orders = message.arrivals, message.snapshots, message.orders
        left_over = [key for key, wake in self._wakes.items() if wake is Wake.REMAINDER]
        self._turns = deque(dict.fromkeys((*left_over, *self._wakes, *message.arrivals, *message.orders)))
        self._output_limit, self._outstanding = OutputLimit(self.settings.share_bytes), {}
        self._begin_next()

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

    # Answers of the resequencers

    def receiveMsg_Decided(self, message: TurnTaken, sender: ActorAddress) -> None:
        turn = self._outstanding.pop(message.key, None)
        if turn is None:
            return
        self._output_limit.note(_bytes_of(message.decision), is_remainder=Wake.REMAINDER in turn.wakes)
        self._registry.note(message, self._now)
        self._decisions.append(message)
        self._begin_next()

    def receiveMsg_Refused(self, message: Refused, sender: ActorAddress) -> None:
        self._supervise(Failure.STATE, message.key, str(message.error))

    def receiveMsg_PoisonMessage(self, message: PoisonMessage, sender: ActorAddress) -> None:
        turn = message.poisonMessage
        if isinstance(turn, Begin):
            self._supervise(Failure.STATE, turn.key, str(message.details))
        elif isinstance(turn, TakeTurn):
            self._supervise(Failure.CAREFUL_TURN if turn.is_careful else Failure.TURN, turn.key, str(message.details))

    def receiveMsg_ChildActorExited(self, message: ChildActorExited, sender: ActorAddress) -> None:
        key = self._stopping.pop(message.childAddress.actorAddressString, None)
        if key is not None:
            for each in self._kept.pop(key):
                self._send_to_new(each)

    # Turns and actors

    def _begin_next(self) -> None:
        """Begin the next turn that has a share, new envelopes or orders, and answer the cycle after the last turn."""
        while self._turns:
            key = self._turns.popleft()
            wakes = (self._wakes[key],) if key in self._wakes else ()
            orders, share = self._orders.get(key, ()), self._share_of(key, wakes)
            turn = TakeTurn(key, self._arrivals.get(key, ()), wakes, self._now, share, orders=orders)
            # An order is executed now: without a share it leaves a remainder.
            if turn.share or turn.envelopes or turn.orders:
                self._outstanding[key] = turn
                self._pass_on(turn)
                return
            self._registry.put_off(key, self._now)
        self._answer()

    def _share_of(self, key: UnitKey, wakes: tuple[Wake, ...]) -> int:
        if Wake.REMAINDER in wakes:
            return self._output_limit.for_remainder()
        return 0 if self._registry.has_remainder(key) else self._output_limit.for_other()

    def _pass_on(self, turn: TakeTurn) -> None:
        child = self._children.get(turn.key)
        if child is not None:
            self.send(child, turn)
            return
        begin = Begin(turn.key, self._snapshots.get(turn.key))
        if turn.key in self._kept:
            self._kept[turn.key] += (begin, turn)
        else:
            self._send_to_new(begin)
            self._send_to_new(turn)

    def _send_to_new(self, message: Begin | TakeTurn) -> None:
        key = message.key
        if isinstance(message, Begin):
            self._children[key] = self.createActor(self.resequencer)
            self._registry.activate(key)
        self.send(self._children[key], message)

    def _stop(self, key: UnitKey) -> None:
        child = self._children.pop(key, None)
        if child is not None:
            self._stopping[child.actorAddressString] = key
            self._kept[key] = []
            self.send(child, ActorExitRequest())

    def _supervise(self, failure: Failure, key: UnitKey, details: str) -> None:
        turn = self._outstanding.get(key)
        if turn is None:
            return
        if SUPERVISION[failure] is Directive.TAKE_AGAIN:
            _log.warning(
                "a turn of unit %s of %s failed and is repeated: each envelope on which it fails becomes a dead letter, "
                "the unit's other envelopes are handled",
                key.unit, key.partition,
                extra={"unit": key.unit, "partition": str(key.partition)},
            )  # fmt: skip
            self.send(self._children[key], replace(turn, is_careful=True))
            return
        del self._outstanding[key]
        self._failure = Escalated(failure, key, details)
        self._answer()

    def _answer(self) -> None:
        asked_by, self._asked_by = self._asked_by, None
        self._turns, self._arrivals, self._snapshots, self._wakes, self._orders = deque(), {}, {}, {}, {}
        decisions, self._decisions = self._decisions, []
        if asked_by is None:
            return
        if self._failure is not None:
            self.send(asked_by, self._failure)
        else:
            self._tell_of_servers()
            self.send(asked_by, Decided(tuple(decisions), self._registry.next_wake_at, self._registry.is_held_up))

    def _tell_of_servers(self) -> None:
        """Log once when the first unit begins to wait for a server, and once when no unit waits for it any more."""
        before, self._unavailable = self._unavailable, frozenset(self._registry.unavailable)
        for name in sorted(self._unavailable - before):
            _log.warning("%s is unavailable: units that need it wait and are retried until it answers", name)
        for name in sorted(before - self._unavailable):
            _log.warning("%s: no unit waits for it any more", name)


def _bytes_of(decision: Decision) -> int:
    """The bytes that a decision adds to the cycle's commit: its output, and the payment data, which is always written whole."""
    data = None if decision.change is None else decision.change.payment_data
    return decision.let_out + len(data or b"")
