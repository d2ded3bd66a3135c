"""Replays a unit: runs its own pure code over its arrivals, with the releases of lookups that the output names.

The records do not show when a deadline or a bound released the stash; it may have been between any two arrivals. The marks
`incomplete` in the output narrow it down. Up to `_WIDTH` possible courses are replayed in parallel, and the one that agrees best
with the output counts. Operators' orders are executed in the same way: their outcomes say in which order, but not between which
arrivals.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from notification_service.jobs.audit.observed import ObservedNotification, likeness_of, observe_expected
from notification_service.jobs.audit.rules import AuditRules
from notification_service.jobs.audit.unit_output import UnitOutput
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.event import Event
from resequencer.notification import Notification
from resequencer.turn.dry_run import DryRunResult, dry_run, dry_run_in_order, dry_run_order
from resequencer.unit import Unit

_WIDTH = 16
"""The maximum number of possible courses that are replayed in parallel."""

_SILENT = 64
"""The largest stash whose release is tried without a trace of it in the output: each try costs as much as handling the stash."""


class Emission(NamedTuple):
    """A notification or dead letter that must be published once all records up to the offset `trigger` are settled."""

    made: ObservedNotification | DeadLetter
    offset: int
    trigger: int


class Link(NamedTuple):
    """A linked list of the emissions, the latest first; replays that branched share the part before."""

    before: "Link | None"
    emission: Emission


class Replay(NamedTuple):
    """One possible replay of a unit.

    `score` rates how well it agrees with the output so far, `highest` is the highest place in the output among its emissions.
    `explained` counts its notifications that match the output; None once an emission is missing in the output or differs.
    `is_guessed` is set after a release without a trace in the output. `counted_at` is the offset of the last envelope that was
    handled or stashed. `next_act` is the index of the next order of an operator, `certain` counts the executed orders that every
    right replay executes.
    """

    unit: Unit
    score: int = 0
    highest: int = -1
    last: Link | None = None
    explained: int | None = 0
    is_guessed: bool = False
    counted_at: int = -1
    next_act: int = 0
    certain: int = 0

    def emissions(self) -> list[Emission]:
        """Return the emissions in the order of publishing."""
        found, link = list[Emission](), self.last
        while link is not None:
            found.append(link.emission)
            link = link.before
        return found[::-1]


class Replays:
    """The possible courses of one unit from a given state on. Call `arrive` for each arrival in order, then `best`.

    Releases without a trace in the output are tried only if it `is_thorough`.
    """

    def __init__(self, beginning: Replay, rules: AuditRules, output: UnitOutput, *, is_thorough: bool = False) -> None:
        self.is_thorough = is_thorough
        self._rules = rules
        self._output = output
        self._replays = [beginning]

    @property
    def known(self) -> Replay | None:
        """The replay without a stash whose emissions all match the output; None if there is none yet."""
        for each in self._replays:
            if _is_known(each):
                return each
        return None

    def arrive(self, envelope: Event) -> bool:
        """Replay an arrival; return whether it counted. A duplicate does not, nor does an envelope that became a dead letter."""
        self._branch(envelope.offset)
        results = [dry_run(each.unit, envelope, self._rules.context) for each in self._replays]
        counted_at = envelope.offset if results[0].counts else None
        ways = zip(self._replays, results, strict=True)
        self._replays = [self._after(each, way, envelope.offset, counted_at) for each, way in ways]
        return results[0].counts

    def best(self) -> Replay:
        """Return the replay that agrees best. Call it once, after the last arrival."""
        self._branch(None)
        return max(self._replays, key=rank)

    def is_heard_of(self, replay: Replay) -> bool:
        """Return whether a release of the stash would publish anything. If not, the output cannot show whether it happened."""
        return bool(replay.unit.stash and dry_run(replay.unit, None, self._rules.context).output)

    def _branch(self, offset: int | None) -> None:
        """Add the replays in which orders are executed, or the stash is released, before this record (None: any)."""
        if self._rules.context.releases_by_wait:
            self._replays = [self._released_in_order(each, offset) for each in self._replays]
        if not self.is_thorough and not self._output.incomplete and not self._output.acts:
            return
        acted = [after for each in self._replays for after in islice(self._acted(each), _WIDTH)]
        whole = [each for each in (*self._replays, *acted) if self._may_precede(each, offset)]
        released = [released for each in whole if (released := self._released(each)) is not None]
        acted += [after for each in released for after in islice(self._acted(each), _WIDTH)]
        if acted or released or len(self._replays) > 1:
            self._replays = sorted([*self._replays, *acted, *released], key=_score, reverse=True)[:_WIDTH]

    def _acted(self, replay: Replay) -> Iterator[Replay]:
        """Yield the replays in which one or more of the next orders are executed at this point.

        Each order that had no trace may be executed or left out. So there may be more replays than can be tried.
        """
        acts = self._output.acts
        for index in range(replay.next_act, min(replay.next_act + _WIDTH, len(acts))):
            order, is_certain = acts[index]
            results = dry_run_order(replay.unit, order, self._rules.context)
            if results is not None and self._is_one_release(results):
                after = self._after(replay, results, replay.counted_at)
                after = after._replace(next_act=index + 1, certain=replay.certain + is_certain)
                yield after
                yield from self._acted(after)
            if is_certain:
                return

    def _released_in_order(self, replay: Replay, offset: int | None) -> Replay:
        """Return the replay after what had waited its time left, before what is from `offset` on was published."""
        limit, last = self._output.find_first_place(offset), None
        for each in sorted(replay.unit.stash, key=lambda entry: entry.order):
            seen = self._output.find_first(each.envelope.offset)
            if seen is not None and seen.incomplete is not None:
                break
            if seen is not None and (limit is None or seen.place < limit):
                last = each.order
        if last is None:
            return replay
        return self._after(replay, dry_run_in_order(replay.unit, last, self._rules.context), replay.counted_at)

    def _may_precede(self, replay: Replay, offset: int | None) -> bool:
        """Return whether the stash may have been released before the record at this offset: it was published before it.

        Releases of other strategies than those by wait are known by the instant of their making, or by what they let out.
        """
        if not self._rules.context.releases_by_wait or (limit := self._output.find_first_place(offset)) is None:
            return True
        published = [self._output.find_first(each.envelope.offset) for each in replay.unit.stash]
        return all(seen is None or seen.place < limit for seen in published)

    def _released(self, replay: Replay) -> Replay | None:
        if not replay.unit.stash or not self._may_be_released(replay):
            return None
        results = dry_run(replay.unit, None, self._rules.context)
        if not self._is_one_release(results):
            return None
        after = self._after(replay, results, replay.counted_at)
        return after if self._is_seen(replay) else after._replace(is_guessed=True)

    def _may_be_released(self, replay: Replay) -> bool:
        if self._is_seen(replay):
            return True
        stash = replay.unit.stash
        is_silent = self.is_thorough and len(stash) <= _SILENT
        return is_silent and all(self._output.find_first(each.envelope.offset) is None for each in stash)

    def _is_seen(self, replay: Replay) -> bool:
        """Return whether the output marks any stashed envelope as incomplete."""
        incomplete = self._output.incomplete
        return bool(incomplete) and any(each.envelope.offset in incomplete for each in replay.unit.stash)

    def _is_one_release(self, results: DryRunResult) -> bool:
        """Return whether all marked notifications of these results were made at one instant, and no others of their kind then.

        True for a user's own target type, which may have been called again in between, and if instants are unknown.
        """
        made = [each.notification_id for each in results.output if isinstance(each, Notification)]
        marked = [seen for each in made if (seen := self._output.find(each)) is not None and seen.incomplete is not None]
        if self._rules.handler.is_foreign or any(each.created_at is None for each in marked):
            return True
        releases = {(each.created_at, each.is_ordered) for each in marked if each.created_at is not None}
        return not releases or (len(releases) == 1 and self._output.released[releases.pop()] <= set(made))

    def _after(self, replay: Replay, results: DryRunResult, trigger: int, counted_at: int | None = None) -> Replay:
        _, score, highest, last, explained, is_guessed, before, *acts = replay
        for each in results.output:
            emission, rated, place, is_right = self._rated(each, trigger, highest)
            score, highest, last = score + rated, max(highest, place), Link(last, emission)
            explained = explained + (place >= 0) if is_right and explained is not None else None
        counted_at = before if counted_at is None else counted_at
        return Replay(results.unit, score, highest, last, explained, is_guessed, counted_at, *acts)

    def _rated(self, made: Notification | DeadLetter, trigger: int, highest: int) -> tuple[Emission, int, int, bool]:
        """Return the emission, its score, its place in the output (-1 if absent), and whether it is exactly as required."""
        if isinstance(made, DeadLetter):
            offset = made.record.origin.offset
            is_right = self._output.is_dead_lettered(offset, made.reason)
            # Only the score distinguishes an order to dead-letter an envelope from a replay without it.
            rated = (1 if is_right else -1) if made.reason is DeadLetterReason.ORDERED else 0
            return Emission(made, offset, trigger), rated, -1, is_right
        seen = self._output.find(made.notification_id)
        if seen is not None and seen.likeness == likeness_of(made):
            # The usual case. The observed notification is used, so that equal ones are in memory only once.
            is_behind = seen.place < highest
            return Emission(seen, made.origin.offset, trigger), 2 - is_behind, seen.place, not is_behind
        expected = observe_expected(made)
        if seen is None:
            return Emission(expected, made.origin.offset, trigger), -1, -1, False
        is_behind, has_marks = seen.place < highest, seen.marks == expected.marks
        rated = (2 if has_marks else -1) - is_behind - (seen.digest != expected.digest) - (seen.is_ordered != expected.is_ordered)
        is_alike = has_marks and seen.is_like(expected)
        emission = Emission(seen if is_alike else expected, made.origin.offset, trigger)
        return emission, rated, seen.place, is_alike and not is_behind


def _is_known(replay: Replay) -> bool:
    is_settled = not replay.unit.stash and replay.unit.hold is None
    return replay.explained is not None and not replay.is_guessed and is_settled


def _score(replay: Replay) -> int:
    return replay.score


def rank(replay: Replay) -> tuple[int, int]:
    """Return how well the replay agrees with the orders that were done, and then with the output."""
    return replay.certain, replay.score


_KEPT = 1_000
"""The maximum number of envelopes that are kept for the second stage."""


class StagedReplay:
    """Works as `Replays`, which it uses. The first stage tries only releases of which the output has a trace.

    Whenever a replay's emissions all match the output, its state becomes the new start. If the output cannot be explained like
    this, the second stage replays the envelopes since that start, with every possible release.
    """

    def __init__(self, unit: str, rules: AuditRules, output: UnitOutput) -> None:
        self._rules = rules
        self._output = output
        self._known = Replay(rules.context.new_unit(unit))
        self._since: list[Event] = []
        self._replays = Replays(self._known, rules, output)

    def arrive(self, envelope: Event) -> bool:
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
