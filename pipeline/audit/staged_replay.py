"""The ways of a unit, first those on which every release is seen: others are rare, and dear to follow."""

from domain.envelope import DataEnvelope
from pipeline.audit.replay import Course, Courses
from pipeline.audit.rules import AuditRules
from pipeline.audit.unit_output import UnitOutput
from resequencer.unit import Unit

_KEPT = 1_000
"""So many envelopes are kept at most to be gone through again."""


class LikelyCourses:
    """As `Courses`, which it asks: first only for ways on which every release is seen in the output.

    Whenever such a way lets out all that came, just as it is there, all before is settled for good. What came since is gone
    through again, with every release that may have been, if what is there cannot be explained.
    """

    def __init__(self, unit: str, rules: AuditRules, output: UnitOutput) -> None:
        self._rules = rules
        self._output = output
        self._known = Course(Unit(unit, rules.strategy.initial()))
        self._since: list[DataEnvelope] = []
        self._courses = Courses(self._known, rules, output)

    def arrive(self, envelope: DataEnvelope) -> bool:
        """Whether it counted: a duplicate does not, and what became a dead letter at once."""
        counts = self._courses.arrive(envelope)
        known = self._courses.known
        if known is not None:
            self._begin_at(known)
        elif not self._courses.is_thorough:
            self._since.append(envelope)
            if len(self._since) > _KEPT:
                self._look_closer()
        return counts

    def best(self) -> Course:
        """Call it once, when everything has arrived."""
        best = self._courses.best()
        if self._courses.is_thorough or best.explained == self._output.count:
            return best
        self._look_closer()
        return self._courses.best()

    def is_heard_of(self, course: Course) -> bool:
        """Whether the release of what waits would let anything out; of one that would not nobody can tell whether it was."""
        return self._courses.is_heard_of(course)

    def _begin_at(self, known: Course) -> None:
        self._known = known
        self._since.clear()
        if self._courses.is_thorough:
            self._courses = Courses(known, self._rules, self._output)

    def _look_closer(self) -> None:
        self._courses = Courses(self._known, self._rules, self._output, is_thorough=True)
        for each in self._since:
            self._courses.arrive(each)
        self._since.clear()
