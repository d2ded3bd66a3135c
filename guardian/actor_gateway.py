"""The cycle's interface to the actors of a worker: each question gets one answer."""

from typing import Any, TypeVar

import msgspec
from thespian.actors import PoisonMessage

from domain.errors import ResequencerError
from guardian.actor_system import make_actor_system
from guardian.guardian_actor import Escalated, Guardian
from guardian.messages import Active, Arm, Decide, Decided, Drop, ListActive, Prepare, Prepared, ReportUnits, Rest, UnitsReport
from guardian.supervision import Failure
from guardian.unit_registry import UnitRegistrySettings
from resequencer.actor import Resequencer
from resequencer.turn.context import TurnContext
from resequencer.unit_codec import Decode, UnitCodec

_Answer = TypeVar("_Answer")


class ActorsFailed(ResequencerError):
    """The guardian itself failed; the worker ends without committing (supervision.py)."""


class ActorGateway:
    """One in-process actor system with its guardian. Everything runs in the calling thread."""

    def __init__(self, context: TurnContext, decode: Decode, settings: UnitRegistrySettings) -> None:
        resequencer = type(
            "WorkerResequencer", (Resequencer,), {"context": context, "codec": UnitCodec(context.strategy, decode)}
        )
        guardian = type("WorkerGuardian", (Guardian,), {"resequencer": resequencer, "settings": settings})
        self._system = make_actor_system()
        self._guardian = self._system.createActor(guardian)

    def arm(self, message: Arm) -> None:
        self._ask(message, Arm)

    def drop(self, message: Drop) -> None:
        self._ask(message, Drop)

    def rest(self, message: Rest) -> None:
        self._ask(message, Rest)

    def prepare(self, message: Prepare) -> Prepared:
        return self._ask(message, Prepared)

    def decide(self, message: Decide) -> Decided:
        """Decide about a poll.

        Raises:
            Escalated: A unit failed, and the worker must end.
            ActorsFailed: The guardian failed.
        """
        return self._ask(message, Decided)

    def active(self) -> Active:
        return self._ask(ListActive(), Active)

    def report_units(self, message: ReportUnits) -> UnitsReport:
        return self._ask(message, UnitsReport)

    def close(self) -> None:
        self._system.shutdown()

    def _ask(self, message: msgspec.Struct, expected: type[_Answer]) -> _Answer:
        answer: Any = self._system.ask(self._guardian, message)
        if isinstance(answer, expected):
            return answer
        if isinstance(answer, Escalated):
            raise answer
        details = answer.details if isinstance(answer, PoisonMessage) else f"answered {answer!r}"
        raise ActorsFailed(f"{Failure.GUARDIAN}: {type(message).__name__}: {details}")
