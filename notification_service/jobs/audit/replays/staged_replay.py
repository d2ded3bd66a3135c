"""Replays a unit in two stages: first only with releases that the output shows; other cases are rare and expensive to track."""

from notification_service.jobs.audit.replays.replay import Replay, Replays, rank
from notification_service.jobs.audit.rules import AuditRules
from notification_service.jobs.audit.unit_output import UnitOutput
from resequencer.envelope import DataEnvelope
from resequencer.unit import Unit

_KEPT = 1_000
"""The most envelopes that are kept for the second stage."""


class StagedReplay:
    """Works as `Replays`, which it uses. The first stage tries only releases of which the output has a trace.

    Whenever a replay's emissions all match the output, its state becomes the new start. If the output cannot be explained like
    this, the second stage replays the envelopes since that start, with every possible release.
    """

    def __init__(self, unit: str, rules: AuditRules, output: UnitOutput) -> None:
        self._rules = rules
        self._output = output
        self._known = Replay(Unit(unit, rules.strategy.initial()))
        self._since: list[DataEnvelope] = []
        self._replays = Replays(self._known, rules, output)

    def arrive(self, envelope: DataEnvelope) -> bool:
        """Replay an arrival; return whether it counted. A duplicate does not, nor does an envelope that became a dead letter."""
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
        """Return the replay that agrees best. Call it once, after the last arrival."""
        best = self._replays.best()
        if self._replays.is_thorough or best.explained == self._output.count:
            return best
        self._look_closer()
        # A start that explains all output may lie behind the place of an order that it leaves out.
        return max(best, self._replays.best(), key=rank)

    def is_heard_of(self, replay: Replay) -> bool:
        """Return whether a release of the stash would publish anything. If not, the output cannot show whether it happened."""
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
