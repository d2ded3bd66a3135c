"""A user's own strategy, kept from harming more than the envelope it fails on."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from domain.envelope import DataEnvelope
from domain.errors import PermanentError, words_of
from resequencer.in_flight import CallKind, InFlight, Untracked
from resequencer.strategies.port import Rank, Strategy, StrategyState

_Answer = TypeVar("_Answer")
_QUESTIONS = ("initial", "rank", "observe", "accepts", "handled", "forced", "dead_lettered", "is_late", "missing")
_FORMER = {"dead_lettered": "buried"}
"""What a question was called in 0.1.0: a strategy that answers it under that name is asked under it."""

_LONGEST_TEXT = 1_000


class ForeignStrategy:
    """Passes every question on and turns whatever is raised into a `PermanentError`: one dead letter, the unit goes on.

    How a unit begins is asked once, when it is made: that is no envelope's affair. With every other question the envelope stands
    in `in_flight` until it is answered.
    """

    def __init__(self, strategy: Strategy, name: str, in_flight: InFlight | None = None) -> None:
        """Raises whatever it raises, and TypeError if it cannot be asked everything: that must not be found out at a deadline."""
        former = {new: old for new, old in _FORMER.items() if _place(strategy, old) < _place(strategy, new)}
        lacking = [each for each in _QUESTIONS if not callable(getattr(strategy, former.get(each, each), None))]
        if lacking:
            raise TypeError(f"it has no {', '.join(lacking)}")
        self._strategy = strategy
        self._dead_lettered = getattr(strategy, former.get("dead_lettered", "dead_lettered"))
        self.remarks = tuple(f"strategy {name}: its method {old} is called {new} now; rename it" for new, old in former.items())
        self._in_flight = in_flight or Untracked()
        self.name = name
        self.needs_sequence = bool(strategy.needs_sequence)
        self.gathers = bool(strategy.gathers)
        self.state_type: type[StrategyState] = strategy.state_type
        if not issubclass(self.state_type, StrategyState):
            raise TypeError("its state_type is no subclass of StrategyState")
        self._initial = msgspec.msgpack.encode(self._checked_state(strategy.initial()))

    def initial(self) -> Any:
        return msgspec.msgpack.decode(self._initial, type=self.state_type)

    def rank(self, envelope: DataEnvelope) -> Rank:
        return self._ask(envelope, lambda: _checked_rank(self._strategy.rank(envelope)))

    def observe(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._state(self._strategy.observe, state, envelope)

    def accepts(self, state: Any, envelope: DataEnvelope) -> bool:
        return self._ask(envelope, lambda: bool(self._strategy.accepts(state, envelope)))

    def handled(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._state(self._strategy.handled, state, envelope)

    def forced(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._state(self._strategy.forced, state, envelope)

    def dead_lettered(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._state(self._dead_lettered, state, envelope)

    def is_late(self, state: Any, envelope: DataEnvelope) -> bool:
        return self._ask(envelope, lambda: bool(self._strategy.is_late(state, envelope)))

    def missing(self, state: Any, envelope: DataEnvelope) -> str:
        return self._ask(envelope, lambda: _checked_text(self._strategy.missing(state, envelope)))

    def _state(self, question: Callable[[Any, DataEnvelope], Any], state: Any, envelope: DataEnvelope) -> Any:
        """A state that could not be stored, or not be read again, would fail when nobody knows any more whose fault it was."""
        return self._ask(envelope, lambda: self._checked_state(question(state, envelope)))

    def _checked_state(self, state: Any) -> Any:
        if not isinstance(state, self.state_type):
            raise TypeError(f"{type(state).__name__} instead of its state type {self.state_type.__name__}")
        msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=self.state_type)
        return state

    def _ask(self, envelope: DataEnvelope, question: Callable[[], _Answer]) -> _Answer:
        self._in_flight.take(envelope, CallKind.ASKING)
        try:
            return question()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # Foreign code may raise anything; it costs its envelope, not the worker.
            raise PermanentError(f"strategy {self.name} failed: {words_of(error)}") from error
        finally:
            self._in_flight.clear()


def _place(strategy: Strategy, name: str) -> int:
    """How far up among its classes the name is defined: a subclass of ours may still define the former one."""
    classes = type(strategy).__mro__
    return next((at for at, each in enumerate(classes) if name in vars(each)), len(classes))


def _checked_rank(rank: Any) -> Rank:
    lane, place = rank
    return Rank(str(lane), int(place))


def _checked_text(text: Any) -> str:
    """As it can be stored and sent: text of Unicode, of no type of its own, and short, for it is kept while the unit waits."""
    return str(text)[:_LONGEST_TEXT].encode(errors="replace").decode()
