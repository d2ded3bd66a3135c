"""The registry of strategies: by a sequence, others that an application hands in, and a user's own by `package.module:Class`.

The documentation is the page "Resequencer" of Icon's IPF Notification Service (docs/design.md).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from resequencer.clock import Instant
from resequencer.errors import ConfigurationError, PermanentError, words_of
from resequencer.event import Event
from resequencer.in_flight import CallKind, InFlight, Untracked
from resequencer.strategies.completeness import Completeness
from resequencer.strategies.port import Rank, Strategy, StrategyState
from resequencer.strategies.previous import Previous
from resequencer.strategies.sequence import Sequence, StrictSequence
from resequencer.strategies.window import OrderBy, Window
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
        self.releases_by_wait = bool(getattr(strategy, "releases_by_wait", False))
        self.needs_time = bool(getattr(strategy, "needs_time", False))
        self.next_lane = None if getattr(strategy, "next_lane", None) is None else self._next_lane
        self.state_type: type[StrategyState] = strategy.state_type
        if not issubclass(self.state_type, StrategyState):
            raise TypeError("its state_type is no subclass of StrategyState")
        self._initial = msgspec.msgpack.encode(self._checked_state(strategy.initial()))

    def initial(self) -> Any:
        return msgspec.msgpack.decode(self._initial, type=self.state_type)

    def arrived(self, envelope: Event, at: Instant) -> Event:
        arrived = getattr(self._strategy, "arrived", None)
        if arrived is None:
            return envelope
        return self._ask(envelope, lambda: _checked_event(arrived(envelope, at), envelope))

    def rank(self, envelope: Event) -> Rank:
        return self._ask(envelope, lambda: _checked_rank(self._strategy.rank(envelope)))

    def observe(self, state: Any, envelope: Event) -> Any:
        return self._state(self._strategy.observe, state, envelope)

    def accepts(self, state: Any, envelope: Event) -> bool:
        return self._ask(envelope, lambda: bool(self._strategy.accepts(state, envelope)))

    def handled(self, state: Any, envelope: Event) -> Any:
        return self._state(self._strategy.handled, state, envelope)

    def forced(self, state: Any, envelope: Event) -> Any:
        return self._state(self._strategy.forced, state, envelope)

    def dead_lettered(self, state: Any, envelope: Event) -> Any:
        return self._state(self._strategy.dead_lettered, state, envelope)

    def skip(self, state: Any, envelope: Event) -> Any | None:
        """Return the state after the number that the envelope waits for was given up; None if the strategy cannot skip."""
        skip = getattr(self._strategy, "skip", None)
        if skip is None:
            return None
        skipped = self._ask(envelope, lambda: skip(state, envelope))
        return None if skipped is None else self._ask(envelope, lambda: self._checked_state(skipped))

    def is_late(self, state: Any, envelope: Event) -> bool:
        return self._ask(envelope, lambda: bool(self._strategy.is_late(state, envelope)))

    def missing(self, state: Any, envelope: Event) -> str:
        return self._ask(envelope, lambda: _checked_text(self._strategy.missing(state, envelope)))

    def _next_lane(self, envelope: Event) -> str | None:
        """Return the lane that the envelope frees. If the strategy fails, the envelope is handled already, and frees none."""
        next_lane: Callable[[Event], Any] = self._strategy.next_lane  # type: ignore[attr-defined] # It has one.
        try:
            lane = self._ask(envelope, lambda: next_lane(envelope))
        except PermanentError:
            return None
        return None if lane is None else str(lane)

    def _state(self, question: Callable[[Any, Event], Any], state: Any, envelope: Event) -> Any:
        """Call a method that returns a state, and check that the state can be stored and read back.

        A later failure could not be attributed to the envelope.
        """
        return self._ask(envelope, lambda: self._checked_state(question(state, envelope)))

    def _checked_state(self, state: Any) -> Any:
        if not isinstance(state, self.state_type):
            raise TypeError(f"{type(state).__name__} instead of its state type {self.state_type.__name__}")
        msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=self.state_type)
        return state

    def _ask(self, envelope: Event, question: Callable[[], _Answer]) -> _Answer:
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


def _checked_event(event: Any, came: Event) -> Event:
    if not isinstance(event, Event) or event.record is not came.record:
        raise TypeError("arrived returned another event than it was given")
    return event


def _checked_text(text: Any) -> str:
    """Return a text that can be stored and sent: valid Unicode, exactly `str`, and short, because it is kept with the unit."""
    return str(text)[:_LONGEST_TEXT].encode(errors="replace").decode()


class StrategySettings(msgspec.Struct, frozen=True):
    """The name of the strategy, and what it needs.

    The numbers of SEQUENCE and STRICT_SEQUENCE begin with `first_sequence`: 0 or 1; None: with that of the first event that
    comes. COMPLETE waits for the `required_parts`. WINDOW orders by `order_by` (time or sequence) what comes within
    `reorder_window_ms`.
    """

    strategy: str
    first_sequence: int | None = 1
    required_parts: tuple[str, ...] = ()
    order_by: OrderBy = OrderBy.TIME
    reorder_window_ms: int = 2_000

    @property
    def lowest_number(self) -> int:
        """The lowest number that is valid: 0 only where the numbers do not begin with 1."""
        return 1 if self.first_sequence == 1 else 0


Make = Callable[[Any], Strategy]
"""Makes a strategy of its settings, which are `StrategySettings` or a subclass."""


def _sequence(settings: StrategySettings) -> Strategy:
    return Sequence(settings.first_sequence)


def _strict_sequence(settings: StrategySettings) -> Strategy:
    return StrictSequence(settings.first_sequence)


def _complete(settings: StrategySettings) -> Strategy:
    return Completeness(f"COMPLETE[{','.join(settings.required_parts)}]", settings.required_parts)


def _window(settings: StrategySettings) -> Strategy:
    return Window(settings.order_by, settings.reorder_window_ms)


STRATEGIES: Mapping[str, Make] = {
    "SEQUENCE": _sequence,
    "STRICT_SEQUENCE": _strict_sequence,
    "COMPLETE": _complete,
    "PREVIOUS": lambda _: Previous(),
    "WINDOW": _window,
}
"""The strategies that need nothing but what the engine knows of an event."""


def make_known_strategy(
    settings: StrategySettings, key: str, in_flight: InFlight | None = None, known: Mapping[str, Make] = STRATEGIES
) -> Strategy:
    """Return the configured strategy: one of the `known`, or a user's own. `key` is the configuration key that names it.

    During calls of a user's own strategy, the event is in `in_flight`.

    Raises:
        ConfigurationError: The strategy is unknown, or the user's class cannot be imported, created or used.
    """
    make = known.get(settings.strategy)
    if make is not None:
        return make(settings)
    module_name, colon, class_name = settings.strategy.partition(":")
    if not (module_name and colon and class_name):
        raise ConfigurationError(
            key, f"{settings.strategy!r} is no strategy; use one of {', '.join(known)}, or package.module:Class"
        )
    try:
        made = import_named(settings.strategy)(settings)
        return ForeignStrategy(made, settings.strategy, in_flight)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Foreign code may raise anything.
        raise ConfigurationError(
            key, f"{settings.strategy!r} cannot be used: {words_of(error)}; see docs/extending.md, 'Add a strategy'"
        ) from error
