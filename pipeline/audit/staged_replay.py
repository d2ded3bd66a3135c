"""The ways of a unit, first those on which every release is seen: others are rare, and dear to follow."""

from domain.envelope import DataEnvelope
from pipeline.audit.replay import Replay, Replays
from pipeline.audit.rules import AuditRules
from pipeline.audit.unit_output import UnitOutput
from resequencer.unit import Unit

_KEPT = 1_000
"""So many envelopes are kept at most to be gone through again."""


class StagedReplay:
    """As `Replays`, which it asks: first only for ways on which every release is seen in the output.

    Whenever such a way lets out all that came, just as it is there, all before is settled for good. What came since is gone
    through again, with every release that may have been, if what is there cannot be explained.
    """

    def __init__(self, unit: str, rules: AuditRules, output: UnitOutput) -> None:
        self._rules = rules
        self._output = output
        self._known = Replay(Unit(unit, rules.strategy.initial()))
        self._since: list[DataEnvelope] = []
        self._replays = Replays(self._known, rules, output)

    def arrive(self, envelope: DataEnvelope) -> bool:
        """Whether it counted: a duplicate does not, and what became a dead letter at once."""
        counts = self._replays.arrive(envelope)
        known = self._replays.known
        if known is not None:
            self._begin_at(known)
        elif not self._replays.is_thorough:
            self._since.append(envelope)
            if len(self._since) > _KEPT:
                self._look_closer()
        return counts

    def best(self) -> Replay:
        """Call it once, when everything has arrived."""
        best = self._replays.best()
        if self._replays.is_thorough or best.explained == self._output.count:
            return best
        self._look_closer()
        return self._replays.best()

    def is_heard_of(self, replay: Replay) -> bool:
        """Whether the release of what waits would let anything out; of one that would not nobody can tell whether it was."""
        return self._replays.is_heard_of(replay)

    def _begin_at(self, known: Replay) -> None:
        self._known = known
        self._since.clear()
        if self._replays.is_thorough:
            self._replays = Replays(known, self._rules, self._output)

    def _look_closer(self) -> None:
        self._replays = Replays(self._known, self._rules, self._output, is_thorough=True)
        for each in self._since:
            self._replays.arrive(each)
        self._since.clear()
