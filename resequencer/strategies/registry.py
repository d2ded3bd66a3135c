"""The registry of strategies: the four documented ones, STRICT_SEQUENCE, and a user's own by `package.module:Class`.

The documentation is the page "Resequencer" of Icon's IPF Notification Service (docs/design.md).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from resequencer.envelope import DataEnvelope
from resequencer.errors import ConfigurationError, PermanentError, words_of
from resequencer.in_flight import CallKind, InFlight, Untracked
from resequencer.strategies.completeness import Completeness
from resequencer.strategies.port import Rank, Strategy, StrategyState
from resequencer.strategies.sequence import Sequence, StrictSequence
from resequencer.users_code import import_named

_Answer = TypeVar("_Answer")
_QUESTIONS = ("initial", "rank", "observe", "accepts", "handled", "forced", "dead_lettered", "is_late", "missing")
_LONGEST_TEXT = 1_000


class ForeignStrategy:
    """Calls the strategy and turns any exception into a `PermanentError`: one dead letter, and the unit goes on.

    `initial` of the strategy is called once, at construction, because it belongs to no envelope. During every other call the
    envelope is in `in_flight`.
    """

    def __init__(self, strategy: Strategy, name: str, in_flight: InFlight | None = None) -> None:
        """Check the strategy now, because an incomplete one must not show only at a deadline.

        Raises whatever the strategy raises, and TypeError if a method is missing or a type is wrong.
        """
        lacking = [each for each in _QUESTIONS if not callable(getattr(strategy, each, None))]
        if lacking:
            raise TypeError(f"it has no {', '.join(lacking)}")
        self._strategy = strategy
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
        return self._state(self._strategy.dead_lettered, state, envelope)

    def skip(self, state: Any, envelope: DataEnvelope) -> Any | None:
        """Return the state after the number that the envelope waits for was given up; None if the strategy cannot skip."""
        skip = getattr(self._strategy, "skip", None)
        if skip is None:
            return None
        skipped = self._ask(envelope, lambda: skip(state, envelope))
        return None if skipped is None else self._ask(envelope, lambda: self._checked_state(skipped))

    def is_late(self, state: Any, envelope: DataEnvelope) -> bool:
        return self._ask(envelope, lambda: bool(self._strategy.is_late(state, envelope)))

    def missing(self, state: Any, envelope: DataEnvelope) -> str:
        return self._ask(envelope, lambda: _checked_text(self._strategy.missing(state, envelope)))

    def _state(self, question: Callable[[Any, DataEnvelope], Any], state: Any, envelope: DataEnvelope) -> Any:
        """Call a method that returns a state, and check that the state can be stored and read back.

        A later failure could not be attributed to the envelope.
        """
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
        except BaseException as error:  # Foreign code may raise anything. That costs its envelope, not the worker.
            raise PermanentError(f"strategy {self.name} failed: {words_of(error)}") from error
        finally:
            self._in_flight.clear()


def _checked_rank(rank: Any) -> Rank:
    lane, place = rank
    return Rank(str(lane), int(place))


def _checked_text(text: Any) -> str:
    """Return a text that can be stored and sent: valid Unicode, exactly `str`, and short, because it is kept with the unit."""
    return str(text)[:_LONGEST_TEXT].encode(errors="replace").decode()


_KEY = "payment-status-notification.resequencer.strategy"


class StrategySettings(msgspec.Struct, frozen=True):
    """The name of the strategy, and the keys for which the FULL_PAIN001_AND_… strategies wait."""

    strategy: str
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()


STRATEGIES: dict[str, Callable[[StrategySettings], Strategy]] = {
    "FULL_PAIN001": lambda settings: Completeness(settings.strategy),
    "FULL_PAIN001_AND_CUSTOM_DATA": lambda settings: Completeness(settings.strategy, custom_keys=settings.custom_data_keys),
    "FULL_PAIN001_AND_PDS_DATA": lambda settings: Completeness(settings.strategy, pds_keys=settings.pds_data_keys),
    "SEQUENCE": lambda _: Sequence(),
    "STRICT_SEQUENCE": lambda _: StrictSequence(),
}


def make_strategy(settings: StrategySettings, in_flight: InFlight | None = None) -> Strategy:
    """Return the configured strategy. During calls of a user's own strategy, the envelope is in `in_flight`.

    Raises:
        ConfigurationError: The strategy is unknown, or the user's class cannot be imported, created or used.
    """
    known = STRATEGIES.get(settings.strategy)
    return known(settings) if known else _foreign(settings, in_flight)


def _foreign(settings: StrategySettings, in_flight: InFlight | None) -> Strategy:
    module_name, colon, class_name = settings.strategy.partition(":")
    if not (module_name and colon and class_name):
        raise ConfigurationError(
            _KEY, f"{settings.strategy!r} is no strategy; use one of {', '.join(STRATEGIES)}, or package.module:Class"
        )
    try:
        made = import_named(settings.strategy)(settings)
        return ForeignStrategy(made, settings.strategy, in_flight)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Foreign code may raise anything.
        raise ConfigurationError(
            _KEY, f"{settings.strategy!r} cannot be used: {words_of(error)}; see docs/extending.md, 'Add a strategy'"
        ) from error
