"""The resequencer: the actor of one unit of work. It keeps the unit and passes its turns to the core."""

from typing import Any, ClassVar

from msgspec.structs import replace
from thespian.actors import Actor, ActorAddress

from resequencer.batch import Refused, TakeTurn, TurnsTaken
from resequencer.turn.decide import take_turn
from resequencer.turn.poison import take_careful_turn
from resequencer.turn.turn import TurnContext
from resequencer.unit import Unit, Wake
from resequencer.unit_codec import UnitCodec


class Resequencer(Actor):
    """Created by the guardian. Receives `TakeTurn` at most once per poll.

    It answers no turn: a turn counts itself off its batch, and the one that is the last of the batch tells the guardian. A turn
    that raises stays out and leaves the unit as it was. Thespian calls again, then sends a `PoisonMessage` to the guardian, which
    asks for a careful turn. If the stored snapshot is refused, the turn stays out, too, and so does any later one.

    The composition makes a subclass per worker whose class attributes are its dependencies.
    """

    context: ClassVar[TurnContext]
    codec: ClassVar[UnitCodec]

    def __init__(self) -> None:
        super().__init__()
        self._unit: Unit | None = None
        self._refusal: Refused | None = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        if type(message) is not TakeTurn:
            return
        if self._unit is None and self._refusal is None:
            self._restore(message)
        if self._unit is not None:
            self._take_turn(self._unit, message, sender)
        else:
            self.send(sender, self._refusal)

    def _take_turn(self, unit: Unit, message: TakeTurn, sender: ActorAddress) -> None:
        batch = message.batch
        is_remainder = bool(message.wakes) and Wake.REMAINDER in message.wakes
        budget = batch.for_remainders if is_remainder else batch.for_others
        comes_first = unit.rare is not None and unit.rare.remainder is not None and not is_remainder
        if comes_first:
            budget = 0  # The remainder, in a turn of its own: this turn says that there is one, if only a new format has made it.
        # An order and an answer are taken now: without a budget they leave a remainder. What is idle lets nothing out.
        orders, answer = message.orders, message.answer
        if budget or comes_first or message.envelopes or orders or answer is not None or Wake.PASSIVATE in message.wakes:
            take = take_careful_turn if message.is_careful else take_turn
            turn = take(unit, message.envelopes, message.wakes, batch.now, self.context, budget, orders, answer)
            turn.key = message.key
            batch.note(turn, is_remainder=is_remainder)
        else:
            batch.postponed.append(message.key)
        if batch.count_off():
            self.send(sender, TurnsTaken(batch))

    def _restore(self, message: TakeTurn) -> None:
        """Take over the unit of the first turn. Whatever is wrong with its snapshot, another attempt would meet it too."""
        try:
            if message.snapshot is None:
                self._unit = self.context.new_unit(message.key.unit)
            else:
                self._unit = self.codec.restore(message.key.partition, message.snapshot)
                if self._unit.retry is not None and not self.context.waits:  # With the handler of today the call is an attempt.
                    self._unit.amend(retry=replace(self._unit.retry, is_called=False))
        except Exception as error:  # noqa: BLE001 - StorageRefused and ConfigurationError, or a mistake of ours.
            self._refusal = Refused(message.key, error)
