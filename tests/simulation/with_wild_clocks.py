"""What the service promises where clocks jump and handlers are slow, and how a run is judged by it.

The time of a release depends on the clock, so the output differs from the output of a run without faults. But

* nothing is lost, nothing is notified or dead-lettered twice, nothing is marked as a possible duplicate, no payment data is lost;
* a notification that follows a later one of its unit (of its flow, with a numbering per flow) is marked late, and no other is;
  what a notification is marked to lack, it lacks;
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
        or outcome.remembered.find_missing_data(outcome.notifications)
    )
    return with_true_marks(outcome._replace(problem=problem), work)
