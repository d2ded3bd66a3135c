"""The worker's actors, watched: no turn lets out more than its share and one envelope, and no cycle more than some shares."""

from guardian.actor_gateway import Actors
from guardian.messages import Settle, Settled
from guardian.unit_registry import RosterSettings
from resequencer.turn_context import Rules
from resequencer.unit_codec import Decode


class WatchedActors(Actors):
    def __init__(self, rules: Rules, decode: Decode, settings: RosterSettings) -> None:
        super().__init__(rules, decode, settings)
        self._share = settings.share_bytes

    def settle(self, message: Settle) -> Settled:
        settled = super().settle(message)
        decisions = [each.decision for each in settled.decisions if each.decision.outgoing]
        for each in decisions:
            assert each.let_out - each.outgoing[-1].size < self._share, f"a turn let out {each.let_out} bytes of {self._share}"
        largest = max([each.size for decision in decisions for each in decision.outgoing], default=0)
        let_out = sum([each.let_out for each in decisions])
        assert let_out <= 3 * self._share + 2 * largest, f"a cycle let out {let_out} bytes, a share is {self._share}"
        return settled
