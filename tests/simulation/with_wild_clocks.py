"""What is promised where clocks jump and handlers are slow, and how a life is judged by it.

When something is released depends on the clock, so what leaves is not what leaves when nothing happens. But

* nothing is lost, nothing is told or buried twice, nothing is marked as a possible duplicate;
* a notification that follows a later one of its unit (of its flow, with a numbering per flow) says so, and no other does; what
  it is said to lack it lacks.
"""

from collections import Counter

from crash_simulation import Outcome, Workload, identity_of
from told_marks import find_wrong_mark


def judged_with_wild_clocks(outcome: Outcome, expected: Outcome, work: Workload) -> Outcome:
    if outcome.problem is not None:
        return outcome
    problem = _find_loss(outcome, expected) or _find_double(outcome)
    problem = problem or find_wrong_mark(outcome.told, work.plan.strategy)
    return outcome._replace(problem=problem)


def _find_loss(outcome: Outcome, expected: Outcome) -> str | None:
    known, wanted = (
        {each.identity for each in which.told} | {identity_of(each) for each in which.dead} for which in (outcome, expected)
    )
    return f"lost: {sorted(wanted - known)}" if wanted - known else None


def _find_double(outcome: Outcome) -> str | None:
    marked = [each for each in (*outcome.told, *outcome.dead) if each.is_possible_duplicate]
    if marked:
        return f"marked possible-duplicate, though nothing was forgotten: {marked[0]}"
    times = Counter([each.identity for each in outcome.told]) + Counter([each.position for each in outcome.dead])
    doubled = sorted(each for each, count in times.items() if count > 1)
    return f"left twice: {doubled}" if doubled else None
