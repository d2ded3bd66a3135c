"""The deviations that an audit can find, what each means, and what to do about it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec


class Deviation(StrEnum):
    """The ways in which the output can differ from what the records require."""

    LOST = "lost"
    OVERDUE = "overdue"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    ORPHAN = "orphan"
    UNEXPECTED = "unexpected"
    WRONG_POSITION = "wrong source position"
    WRONG_STATUS = "wrong status"
    WRONG_CONTENT = "wrong content"
    WRONG_HEADERS = "wrong headers"
    FALSELY_LATE = "marked late without a reason"
    FALSELY_INCOMPLETE = "marked incomplete without a reason"
    NOT_MARKED_LATE = "not marked late"
    NOT_MARKED_INCOMPLETE = "not marked incomplete"
    UNREADABLE = "unreadable"
    DEAD_LETTER_MISSING = "dead letter missing"
    DEAD_LETTER_DOUBLED = "dead letter doubled"
    DEAD_LETTER_UNEXPLAINED = "dead letter not explained"
    DEAD_LETTER_WRONG_REASON = "dead letter with another reason"
    DEAD_LETTER_CHANGED = "dead letter with another value"
    RELEASED_WITHOUT_ORDER = "released by an operator without an order that was done"
    ORDER_WITHOUT_OUTCOME = "order without an outcome"
    ORDER_WITH_TWO_OUTCOMES = "order with two outcomes"
    ORDER_EXECUTED_TWICE = "order executed twice"
    OUTCOME_WITHOUT_ORDER = "outcome without an order"
    FACT_MISSING = "fact missing"
    FACT_WITHOUT_NOTIFICATION = "fact without a notification"
    FACT_DOUBLED = "fact doubled"
    GROUP_REPORT_MISSING = "group report missing"
    GROUP_REPORT_DOUBLED = "group report doubled"
    GROUP_REPORT_EARLY = "group reported though not complete"
    GROUP_REPORT_DIFFERS = "group report differs from the facts"
    GROUP_REPORT_WITHOUT_FACTS = "group report without facts"


class Finding(msgspec.Struct, frozen=True):
    """One deviation: its unit, the source position (None if the output names none), and a sentence in `what`.

    That of a group has the group's id in place of the unit, and no position: the sentence names places in the facts.
    """

    deviation: Deviation
    unit: str | None
    partition: int | None
    offset: int | None
    what: str


class Explanation(NamedTuple):
    """Sentences for an operator."""

    meaning: str
    remedy: str


_REPORT = "If not, report it as a defect of the service, with the unit's records and the log."
_MARK = "Inform the readers of the output which units are concerned, and report it as a defect of the service."
_CHANGED = (
    f"Find out whether the settings file, the target type or the version was changed since, or a record was edited. {_REPORT}"
)

EXPLANATIONS: Mapping[Deviation, Explanation] = {
    Deviation.LOST: Explanation(
        "A notification that had to be published is not in the output.",
        f"Find out whether the output was shortened by retention, by hand or by a restored backup. {_REPORT}",
    ),
    Deviation.OVERDUE: Explanation(
        "An envelope still waits, although the service worked on its partition after the deadline.",
        "See whether `resequencer status` shows that the unit waits. If so, report it as a defect of the service; if not, "
        "the unit was released, and its notifications are lost.",
    ),
    Deviation.DOUBLED: Explanation(
        "A notification was published twice, and the second is not marked `possible-duplicate`.",
        f"Find out whether a second service writes to the same output. {_REPORT}",
    ),
    Deviation.OUT_OF_ORDER: Explanation(
        "A notification was published behind one of its unit that belongs after it.",
        f"Find out whether a second service writes to the same output, or the topic was given more partitions. {_REPORT}",
    ),
    Deviation.ORPHAN: Explanation(
        "A notification names a source position at which no record of its unit lies.",
        "Find out whether input was deleted, or the topic was recreated, or another program writes to the output.",
    ),
    Deviation.UNEXPECTED: Explanation(
        "A notification was published although its record leads to none, or was still waiting.",
        f"Find out whether the strategy or the settings file was changed since. {_REPORT}",
    ),
    Deviation.WRONG_POSITION: Explanation(
        "A notification names another source position than that of its record.",
        f"Find out whether the input was written again, so that its offsets changed. {_REPORT}",
    ),
    Deviation.WRONG_STATUS: Explanation(
        "A notification has another status than the settings file gives for its event.", _CHANGED
    ),
    Deviation.WRONG_CONTENT: Explanation("A notification has other content than the records led to at that moment.", _CHANGED),
    Deviation.WRONG_HEADERS: Explanation("A notification has other headers than its record leads to.", _CHANGED),
    Deviation.FALSELY_LATE: Explanation("A notification is marked `late`, but no later one was handled before it.", _MARK),
    Deviation.FALSELY_INCOMPLETE: Explanation("A notification is marked `incomplete`, but nothing was missing.", _MARK),
    Deviation.NOT_MARKED_LATE: Explanation("A notification is not marked `late`, but a later one was handled before it.", _MARK),
    Deviation.NOT_MARKED_INCOMPLETE: Explanation("A notification does not say what was missing, or names something else.", _MARK),
    Deviation.UNREADABLE: Explanation(
        "A record of an output cannot be read.",
        "Look at the record at the place that the finding names: another program wrote it, or the file is damaged.",
    ),
    Deviation.DEAD_LETTER_MISSING: Explanation(
        "A record that cannot be handled has no dead letter.",
        f"Find out whether dead letters were deleted by retention or by hand. {_REPORT}",
    ),
    Deviation.DEAD_LETTER_DOUBLED: Explanation(
        "A record has two dead letters, and the second is not marked `possible-duplicate`.",
        "Requeue only one of them, and report it as a defect of the service.",
    ),
    Deviation.DEAD_LETTER_UNEXPLAINED: Explanation(
        "A record that can be handled has a dead letter.",
        "If its cause was removed since, requeue it with `resequencer dead-letters`. A handler of your own may have refused it.",
    ),
    Deviation.DEAD_LETTER_WRONG_REASON: Explanation(
        "A dead letter names another reason than its record gives.",
        "Find out whether the version or the limits of the service were changed since. The record itself is kept unchanged.",
    ),
    Deviation.DEAD_LETTER_CHANGED: Explanation(
        "A dead letter holds other bytes than its record.",
        "Do not requeue it: send the record of the input once more instead, and report it as a defect of the service.",
    ),
    Deviation.RELEASED_WITHOUT_ORDER: Explanation(
        "A notification says that an operator released it, but no order of its unit did so.",
        f"Find out whether orders or their outcomes were deleted, or `orders.enabled` was switched off since. {_REPORT}",
    ),
    Deviation.ORDER_WITHOUT_OUTCOME: Explanation(
        "An order has no outcome, although a later order of its partition has one.",
        f"Look at the unit (`resequencer units show`) and order again if it is still needed. {_REPORT}",
    ),
    Deviation.ORDER_WITH_TWO_OUTCOMES: Explanation(
        "An order has two outcomes, and the second is not marked `possible-duplicate`.",
        f"Find out whether a second service writes to the same output. {_REPORT}",
    ),
    Deviation.ORDER_EXECUTED_TWICE: Explanation(
        "An order is in its log twice, with one id, and was executed both times.",
        f"Find out which program wrote it twice: an order is given again with a new id. {_REPORT}",
    ),
    Deviation.OUTCOME_WITHOUT_ORDER: Explanation(
        "An outcome names an order that is not in the log of its partition.",
        "Find out whether orders were deleted or their log was recreated, or another program writes outcomes.",
    ),
    Deviation.FACT_MISSING: Explanation(
        "A notification belongs to a group, and there is no fact of its status: the group is counted without it.",
        f"Find out whether facts were deleted by retention or by hand. {_REPORT}",
    ),
    Deviation.FACT_WITHOUT_NOTIFICATION: Explanation(
        "A fact has no notification, though nothing suppresses it.",
        f"Find out whether another program writes facts, or the settings file was changed since. {_REPORT}",
    ),
    Deviation.FACT_DOUBLED: Explanation(
        "A fact is there twice, and the second is not marked `possible-duplicate`.",
        f"Find out whether a second service writes to the same facts. {_REPORT}",
    ),
    Deviation.GROUP_REPORT_MISSING: Explanation(
        "All payments of a message are there and final, and no report says so; or a report with a lower number is not there.",
        "Look at the group (`resequencer groups show`). If it had ended before its last payment was final, none is due. "
        f"Otherwise find out whether reports were deleted. {_REPORT}",
    ),
    Deviation.GROUP_REPORT_DOUBLED: Explanation(
        "A report on a group was published twice with one number, and the second is not marked `possible-duplicate`.",
        f"Find out whether a second service writes to the same output. {_REPORT}",
    ),
    Deviation.GROUP_REPORT_EARLY: Explanation(
        "A report is not marked incomplete although not all payments of its message were there and final, or it says that an "
        "operator closed the group, and no operator did.",
        f"Find out whether `aggregation.final-statuses` was changed since. If not, inform the readers of the report. {_REPORT}",
    ),
    Deviation.GROUP_REPORT_DIFFERS: Explanation(
        "A report says other counts, sums or statuses than the facts lead to. The first one that says that a group is complete "
        "is compared with the facts up to the one that completed it; any other with those up to each fact since.",
        f"Find out whether `aggregation.final-statuses` was changed since, or facts were deleted. {_REPORT}",
    ),
    Deviation.GROUP_REPORT_WITHOUT_FACTS: Explanation(
        "A report is on a group of which there are no facts.",
        "Find out whether facts were deleted or their topic was recreated, or another program writes reports.",
    ),
}
