"""The resequencer: the actor of one unit of work. It keeps the unit's value and passes its turns to the pure core."""

from typing import Any, ClassVar

from thespian.actors import Actor, ActorAddress

from domain.errors import ConfigurationError
from resequencer.messages import Begin, Refused, TakeTurn, TurnTaken
from resequencer.turn.context import TurnContext
from resequencer.turn.poison import decide_without_poison
from resequencer.turn.turn import decide
from resequencer.unit import Unit
from resequencer.unit_codec import UnitCodec
from storage.port import StorageRefused


class Resequencer(Actor):
    """Created by the guardian. Receives `Begin` once and `TakeTurn` at most once per poll, and answers a turn with one message.

    `Begin` is answered only if it is refused. The composition makes a subclass per worker whose class attributes are its
    dependencies. A turn that raises leaves the unit as it was. Thespian calls again, then sends a `PoisonMessage` to the
    guardian, which asks for a careful turn.
    """

    context: ClassVar[TurnContext]
    codec: ClassVar[UnitCodec]

    def __init__(self) -> None:
        super().__init__()
        self._unit: Unit | None = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        if isinstance(message, TakeTurn):
            self._decide(message, sender)
        elif isinstance(message, Begin):
            self._begin(message, sender)

    def _begin(self, message: Begin, sender: ActorAddress) -> None:
        if message.snapshot is None:
            self._unit = Unit(message.key.unit, self.context.strategy.initial())
            return
        try:
            self._unit = self.codec.restore(message.key.partition, message.snapshot)
        except (StorageRefused, ConfigurationError) as error:
            self.send(sender, Refused(message.key, error))

    def _decide(self, message: TakeTurn, sender: ActorAddress) -> None:
        if self._unit is None:
            return
        taken = decide_without_poison if message.is_careful else decide
        came, share = (message.envelopes, message.wakes), message.share
        self._unit, decision = taken(self._unit, *came, message.now, self.context, share, message.orders)
        self.send(sender, TurnTaken(message.key, decision))
