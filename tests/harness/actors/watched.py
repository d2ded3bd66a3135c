"""The worker's actors, with checks: no turn releases more than its share and one envelope, no cycle more than some shares."""

from domain.order import OrderOutcome
from guardian.actor_gateway import ActorGateway
from guardian.messages import Decide, Decided
from guardian.unit_registry import UnitRegistrySettings
from resequencer.turn.context import TurnContext
from resequencer.unit import Decision, Output
from resequencer.unit_codec import Decode


class WatchedActors(ActorGateway):
    def __init__(self, context: TurnContext, decode: Decode, settings: UnitRegistrySettings) -> None:
        super().__init__(context, decode, settings)
        self._share = settings.share_bytes

    def decide(self, message: Decide) -> Decided:
        decided = super().decide(message)
        decisions = [each.decision for each in decided.decisions if _without_outcomes(each.decision)]
        for each in decisions:
            last = _without_outcomes(each)[-1]
            assert each.let_out - last.size < self._share, f"a turn let out {each.let_out} bytes of {self._share}"
        largest = max([each.size for decision in decisions for each in _without_outcomes(decision)], default=0)
        let_out = sum([each.let_out for each in decisions])
        assert let_out <= 3 * self._share + 2 * largest, f"a cycle let out {let_out} bytes, a share is {self._share}"
        return decided


def _without_outcomes(decision: Decision) -> list[Output]:
    """Return what counts for the share of a turn."""
    return [each for each in decision.output if not isinstance(each, OrderOutcome)]
