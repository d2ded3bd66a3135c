"""The deviations that an audit can find."""

from enum import StrEnum

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
