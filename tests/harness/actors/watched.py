"""The worker's actors, with checks: no turn releases more than its budget and one envelope, no cycle more than some budgets."""

from itertools import groupby
from typing import Any

from guardian.actor_gateway import ActorGateway, Decided
from guardian.calls import Calls
from guardian.pending_output import find_origin
from guardian.unit_registry import UnitRegistrySettings
from resequencer.order import OrderOutcome
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit_codec import Decode


class WatchedActors(ActorGateway):
    def __init__(self, context: TurnContext, decode: Decode, settings: UnitRegistrySettings, calls: Calls | None = None) -> None:
        super().__init__(context, decode, settings, calls)
        self._budget = settings.budget_bytes

    def decide(self, *arguments: Any, **named: Any) -> Decided:
        decided = super().decide(*arguments, **named)
        turns = [each for each in decided.turns if _sizes(each)]
        for each in turns:
            last = _sizes(each)[-1]
            assert each.output_bytes - last < self._budget, f"a turn let out {each.output_bytes} bytes of {self._budget}"
        largest = max([size for turn in turns for size in _sizes(turn)], default=0)
        output_bytes = sum([each.output_bytes for each in turns])
        parts = 3 if self._calls is not None else 2  # Remainders, what is new, and answers may each exceed their part by one.
        limit = 3 * self._budget + parts * largest
        assert output_bytes <= limit, f"a cycle let out {output_bytes} bytes, a budget is {self._budget}"
        return decided


def _sizes(turn: Turn) -> list[int]:
    """Return the sizes of what each envelope let out, its facts included, in order. Outcomes of orders count for no budget."""
    output = [each for each in turn.output if not isinstance(each, OrderOutcome)]
    return [sum([each.size for each in of_one]) for _, of_one in groupby(output, find_origin)]
