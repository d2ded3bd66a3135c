"""A user's own strategy, kept from harming more than the envelope it fails on."""

from collections.abc import Callable
from typing import Any

from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.strategies.port import Rank, Strategy, StrategyState


class ForeignStrategy:
    """Passes every question on and turns whatever is raised into a `PermanentError`: one dead letter, the unit goes on."""

    def __init__(self, strategy: Strategy, name: str) -> None:
        self._strategy = strategy
        self.name = name
        self.needs_sequence = bool(strategy.needs_sequence)
        self.gathers = bool(strategy.gathers)
        self.state_type: type[StrategyState] = strategy.state_type

    def initial(self) -> Any:
        return self._ask(self._strategy.initial)

    def rank(self, envelope: DataEnvelope) -> Rank:
        lane, place = self._ask(self._strategy.rank, envelope)
        return Rank(str(lane), int(place))

    def observe(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._ask(self._strategy.observe, state, envelope)

    def accepts(self, state: Any, envelope: DataEnvelope) -> bool:
        return bool(self._ask(self._strategy.accepts, state, envelope))

    def handled(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._ask(self._strategy.handled, state, envelope)

    def forced(self, state: Any, envelope: DataEnvelope) -> Any:
        return self._ask(self._strategy.forced, state, envelope)

    def is_late(self, state: Any, envelope: DataEnvelope) -> bool:
        return bool(self._ask(self._strategy.is_late, state, envelope))

    def missing(self, state: Any, envelope: DataEnvelope) -> str:
        return str(self._ask(self._strategy.missing, state, envelope))

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except Exception as error:
            raise PermanentError(f"strategy {self.name} failed: {type(error).__name__}: {error}") from error
