"""What is promised where clocks jump and handlers are slow, and how a run is judged by it.

When something is released depends on the clock, so what leaves is not what leaves when nothing happens. But

* nothing is lost, nothing is told or dead-lettered twice, nothing is marked as a possible duplicate, no payment data go missing;
* a notification that follows a later one of its unit (of its flow, with a numbering per flow) says so, and no other does; what
  it is said to lack it lacks;
* but units that may have been forgotten between two envelopes may begin anew.
"""

from harness.crashes.outcomes import Outcome, find_loss, find_mark, find_repetition, with_true_marks
from harness.workloads.shuffled import Workload


def judged_with_wild_clocks(outcome: Outcome, expected: Outcome, work: Workload) -> Outcome:
    if outcome.problem is not None:
        return outcome
    problem = (
        find_loss(outcome, expected)
        or find_mark(outcome)
        or find_repetition(outcome)
        or outcome.remembered.find_missing_data(outcome.told)
    )
    return with_true_marks(outcome._replace(problem=problem), work)
