"""How a unit's life may have gone: its own pure code over what arrived, with the releases that the output speaks of.

When a deadline or a bound released a stash cannot be known from the records: it may have been between any two arrivals. The
marks `incomplete` tell which of these ways was taken; a few are followed side by side, and the one that agrees best counts.
"""

from typing import NamedTuple

from domain.dead_letter import DeadLetter
from domain.envelope import DataEnvelope
from domain.notification import Notification
from pipeline.audit.rules import AuditRules
from pipeline.audit.seen import SeenNotification, see_expected
from pipeline.audit.unit_output import UnitOutput
from resequencer.turn import Turned, decide
from resequencer.unit import Unit, Wake

_WIDTH = 16
"""So many ways are followed side by side, at most."""

_SILENT = 64
"""A stash of which nothing was seen is released for a try only if it is no larger: each try costs as much as handling it."""


class Emission(NamedTuple):
    """A notification or a dead letter that must be there once everything up to the offset `trigger` is settled."""

    made: SeenNotification | DeadLetter
    offset: int
    trigger: int


class Link(NamedTuple):
    """What was let out, the latest first; ways that part share what lies before."""

    before: "Link | None"
    emission: Emission


class Course(NamedTuple):
    """One way. `highest` is the highest place in the output of what was let out, `score` how well it agrees so far."""

    unit: Unit
    score: int = 0
    highest: int = -1
    last: Link | None = None

    def emissions(self) -> list[Emission]:
        """In the order in which they left."""
        found, link = list[Emission](), self.last
        while link is not None:
            found.append(link.emission)
            link = link.before
        return found[::-1]


class Courses:
    """The ways of one unit. Give it the arrivals in their order, then ask for the best."""

    def __init__(self, unit: str, rules: AuditRules, output: UnitOutput) -> None:
        self._rules = rules
        self._output = output
        self._courses = [Course(Unit(unit, rules.strategy.initial()))]
        self._last = -1

    def arrive(self, envelope: DataEnvelope) -> bool:
        """Whether it counted: a duplicate does not, and what became a dead letter at once."""
        self._branch()
        turns = [(each, decide(each.unit, (envelope,), (), 0, self._rules.rules)) for each in self._courses]
        self._courses = [self._after(each, turned, envelope.offset) for each, turned in turns]
        tally = turns[0][1].decision.tally
        counts = bool(tally.handled or tally.stashed)
        if counts:
            self._last = envelope.offset
        return counts

    def best(self) -> Course:
        """Call it once, when everything has arrived."""
        self._branch()
        return max(self._courses, key=_score)

    def is_heard_of(self, course: Course) -> bool:
        """Whether the release of what waits would let anything out; of one that would not nobody can tell whether it was."""
        if not len(course.unit.stash):
            return False
        return bool(decide(course.unit, (), (Wake.BOUND,), 0, self._rules.rules).decision.outgoing)

    def _branch(self) -> None:
        """Where a release may have been."""
        released = [released for each in self._courses if (released := self._released(each)) is not None]
        if released or len(self._courses) > 1:
            self._courses = sorted([*self._courses, *released], key=_score, reverse=True)[:_WIDTH]

    def _released(self, course: Course) -> Course | None:
        if not len(course.unit.stash) or not self._may_be_released(course):
            return None
        turned = decide(course.unit, (), (Wake.BOUND,), 0, self._rules.rules)
        return self._after(course, turned, self._last) if self._is_one_release(turned) else None

    def _may_be_released(self, course: Course) -> bool:
        output, stash = self._output, course.unit.stash
        if output.incomplete and any(each.envelope.offset in output.incomplete for each in stash):
            return True
        return len(stash) <= _SILENT and all(output.find_first(each.envelope.offset) is None for each in stash)

    def _is_one_release(self, turned: Turned) -> bool:
        """Whether all of what is marked in it was made at one instant, and nothing else at that instant.

        A user's own target type may have been called again in between.
        """
        made = [each.notification_id for each in turned.decision.outgoing if isinstance(each, Notification)]
        marked = [seen for each in made if (seen := self._output.find(each)) is not None and seen.incomplete is not None]
        if self._rules.handler.is_foreign or any(each.created_at is None for each in marked):
            return True
        instants = {each.created_at for each in marked if each.created_at is not None}
        return not instants or (len(instants) == 1 and self._output.released[instants.pop()] <= set(made))

    def _after(self, course: Course, turned: Turned, trigger: int) -> Course:
        score, highest, last = course.score, course.highest, course.last
        for each in turned.decision.outgoing:
            emission, rated, place = self._rated(each, trigger, highest)
            score, highest, last = score + rated, max(highest, place), Link(last, emission)
        return Course(turned.unit, score, highest, last)

    def _rated(self, made: Notification | DeadLetter, trigger: int, highest: int) -> tuple[Emission, int, int]:
        """With how well it agrees with what was seen of it, and where that is."""
        if isinstance(made, DeadLetter):
            return Emission(made, made.record.origin.offset, trigger), 0, -1
        expected = see_expected(made)
        emission = Emission(expected, made.origin.offset, trigger)
        seen = self._output.find(expected.notification_id)
        if seen is None:
            return emission, -1, -1
        agrees = 2 if (seen.incomplete, seen.is_late) == (expected.incomplete, expected.is_late) else -1
        return emission, agrees - (seen.place < highest) - (seen.digest != expected.digest), seen.place


def _score(course: Course) -> int:
    return course.score
