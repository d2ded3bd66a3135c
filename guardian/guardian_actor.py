"""The guardian: the actor that creates a resequencer per unit of work, and keeps messages for one that is stopping."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

import msgspec
from msgspec.structs import replace
from thespian.actors import ActorAddress, ActorExitRequest, ActorTypeDispatcher, ChildActorExited, PoisonMessage

from resequencer.actor import Resequencer
from resequencer.batch import Batch, Refused, TakeTurn, TurnsTaken, UnitKey
from resequencer.errors import ResequencerError


class Failure(StrEnum):
    """The place where an exception was raised."""

    HANDLER_FOR_A_WHILE = "a handler raised a transient error"
    HANDLER_FOR_EVER = "a handler raised a permanent error, or a transient one too often"
    STRATEGY = "a user's strategy raised"
    TURN = "a resequencer raised in a turn"
    CAREFUL_TURN = "a resequencer raised on no envelope in particular"
    STATE = "what the storage keeps of a unit cannot be used"
    GUARDIAN = "the guardian raised"


class Directive(StrEnum):
    """What happens after a failure, in Akka's words where they fit. The supervisor restarts a worker that ended."""

    RETRY = "the unit waits and the same envelope is tried again"
    DEAD_LETTER = "the envelope becomes a dead letter and the unit goes on"
    TAKE_AGAIN = "the turn is repeated, and only the envelopes on which it fails become dead letters"
    ESCALATE = "the worker ends without committing, and logs the unit"


SUPERVISION: Mapping[Failure, Directive] = {
    Failure.HANDLER_FOR_A_WHILE: Directive.RETRY,
    Failure.HANDLER_FOR_EVER: Directive.DEAD_LETTER,
    Failure.STRATEGY: Directive.DEAD_LETTER,
    Failure.TURN: Directive.TAKE_AGAIN,
    Failure.CAREFUL_TURN: Directive.ESCALATE,
    Failure.STATE: Directive.ESCALATE,
    Failure.GUARDIAN: Directive.ESCALATE,
}
"""An escalation commits nothing, so nothing is lost: records are read again, and waiting envelopes still wait."""


_log = logging.getLogger("resequencer.guardian")


class TakeTurns(msgspec.Struct, frozen=True):
    """Send out these turns, all of `batch`, one after the other. The answer is `TurnsTaken`, or `Escalated`."""

    batch: Batch
    turns: Sequence[TakeTurn]


class Stop(msgspec.Struct, frozen=True):
    """Stop the actors of these units. The answer is the same message."""

    units: Collection[UnitKey]


class Escalated(ResequencerError):
    """A unit failed and cannot go on: the worker ends without committing."""

    def __init__(self, failure: Failure, key: UnitKey, details: str) -> None:
        super().__init__(f"{failure}: unit {key.unit!r} of {key.partition}: {details}")
        self.failure = failure
        self.key = key


class Guardian(ActorTypeDispatcher):
    """Answers `TakeTurns` and `Stop`, one at a time.

    The composition makes a subclass whose class attribute is the class of the resequencers.
    """

    resequencer: ClassVar[type[Resequencer]]

    def __init__(self) -> None:
        super().__init__()
        self._children: dict[UnitKey, ActorAddress] = {}
        self._stopping: dict[str, UnitKey] = {}
        self._kept: dict[UnitKey, list[TakeTurn]] = {}
        self._asked_by: ActorAddress | None = None
        self._batch: Batch | None = None
        self._broken_by: Exception | None = None

    def receiveMessage(self, message: object, sender: ActorAddress) -> None:
        """Receive a message. After a failure, raise the same error on each question: a part of the turns may be out.

        Without this, Thespian would call the failed guardian again.
        """
        if self._broken_by is not None and not isinstance(message, ActorExitRequest):
            if isinstance(message, TakeTurns | Stop):
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

    def receiveMsg_TakeTurns(self, message: TakeTurns, sender: ActorAddress) -> None:
        self._asked_by, self._batch = sender, message.batch
        for turn in message.turns:
            child = self._children.get(turn.key)
            if child is not None:
                self.send(child, turn)
            elif turn.key in self._kept:
                self._kept[turn.key].append(turn)
            else:
                self._send_to_new(turn)

    def receiveMsg_Stop(self, message: Stop, sender: ActorAddress) -> None:
        for key in message.units:
            child = self._children.pop(key, None)
            if child is not None:
                self._stopping[child.actorAddressString] = key
                self._kept[key] = []
                self.send(child, ActorExitRequest())
        self.send(sender, message)

    # Messages of the resequencers

    def receiveMsg_TurnsTaken(self, message: TurnsTaken, sender: ActorAddress) -> None:
        if message.batch is self._batch:
            self._answer(message)

    def receiveMsg_Refused(self, message: Refused, sender: ActorAddress) -> None:
        self._answer(Escalated(Failure.STATE, message.key, str(message.error)))

    def receiveMsg_PoisonMessage(self, message: PoisonMessage, sender: ActorAddress) -> None:
        turn = message.poisonMessage
        if not isinstance(turn, TakeTurn) or turn.batch is not self._batch:
            return
        failure, key = Failure.CAREFUL_TURN if turn.is_careful else Failure.TURN, turn.key
        if SUPERVISION[failure] is not Directive.TAKE_AGAIN:
            self._answer(Escalated(failure, key, str(message.details)))
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

    def _send_to_new(self, turn: TakeTurn) -> None:
        child = self._children[turn.key] = self.createActor(self.resequencer)
        self.send(child, turn)

    def _answer(self, answer: TurnsTaken | Escalated) -> None:
        """Answer the cycle. Turns that are still out after an escalation lead to nothing: the worker ends without a commit."""
        asked_by, self._asked_by, self._batch = self._asked_by, None, None
        if asked_by is not None:
            self.send(asked_by, answer)
