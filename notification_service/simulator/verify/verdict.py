"""The result of a verification."""

from collections import Counter
from enum import StrEnum

import msgspec

from notification_service.judgement.order_check import OrderCounts
from resequencer.printable import counted

EXAMPLES_PER_DEVIATION = 5


class Deviation(StrEnum):
    """The ways in which output can differ from what was promised."""

    LOST = "lost"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    WRONG_CONTENT = "wrong content"
    UNEXPECTED = "unexpected"
    FALSELY_MARKED = "marked incomplete or late without a cause"
    NOT_MARKED = "not marked incomplete despite a gap"
    UNREADABLE = "unreadable"
    DEAD_LETTER_MISSING = "dead letter missing"
    DEAD_LETTER_DOUBLED = "dead letter doubled"
    DEAD_LETTER_UNEXPECTED = "dead letter unexpected"
    DEAD_LETTER_WRONG_REASON = "dead letter with another reason"
    RELEASED_WITHOUT_ORDER = "released by an operator without an order that was done"
    DEAD_LETTER_WITHOUT_ORDER = "dead letter ordered without an order that was done"
    ORDER_WITHOUT_OUTCOME = "order without an outcome"
    ORDER_WITH_TWO_OUTCOMES = "order with two outcomes"
    ORDER_EXECUTED_TWICE = "order executed twice"
    OUTCOME_WITHOUT_ORDER = "outcome without an order"
    FACT_LOST = "fact lost"
    FACT_WRONG = "fact wrong"
    GROUP_REPORT_MISSING = "group report missing"
    GROUP_REPORT_DOUBLED = "group report doubled"
    GROUP_REPORT_WRONG = "group report with wrong content"
    GROUP_REPORT_UNEXPECTED = "group report for a message that is not complete"


class Finding(msgspec.Struct, frozen=True):
    """One deviation: where (a unit or a source position), and a sentence in `what`."""

    deviation: Deviation
    where: str
    what: str


class GroupCounts(msgspec.Struct, frozen=True):
    """The messages that were simulated, how many of them are complete and reported, and the reports.

    `incomplete` of the reports are marked so. `without_message` counts payments that belong to no group.
    """

    messages: int
    complete: int
    reports: int
    incomplete: int
    without_message: int


class Verdict(msgspec.Struct, frozen=True):
    """The result. `counts` has an entry for every deviation, `examples` the first few findings of each.

    `orders` is None if the service takes no orders, `groups` if it does not count the payments of messages. `found_units` counts
    the expected units of which something was notified, `other_units` those of the output that no expectation names.
    """

    strategy: str
    units: int
    notifications: int
    incomplete: int
    late: int
    dead_letters: int
    counts: tuple[tuple[Deviation, int], ...]
    examples: tuple[Finding, ...]
    orders: OrderCounts | None = None
    groups: GroupCounts | None = None
    found_units: int = 0
    other_units: int = 0

    @property
    def is_good(self) -> bool:
        """Whether something was expected and no deviation was found."""
        return self.units > 0 and not any(count for _, count in self.counts)


class Findings:
    """Collects findings: counts all, keeps the first few of each deviation."""

    def __init__(self) -> None:
        self._counts: Counter[Deviation] = Counter()
        self._examples: list[Finding] = []

    def add(self, finding: Finding) -> None:
        self._counts[finding.deviation] += 1
        if self._counts[finding.deviation] <= EXAMPLES_PER_DEVIATION:
            self._examples.append(finding)

    @property
    def total(self) -> int:
        return self._counts.total()

    def counts(self) -> tuple[tuple[Deviation, int], ...]:
        return tuple((deviation, self._counts[deviation]) for deviation in Deviation)

    def examples(self) -> tuple[Finding, ...]:
        order = list(Deviation)
        return tuple(sorted(self._examples, key=lambda finding: order.index(finding.deviation)))


def render_text(verdict: Verdict) -> str:
    """Return the verdict for people: a summary, then a line per deviation that occurred, with examples."""
    lines = [
        f"{counted(verdict.notifications, 'notification')} of {counted(verdict.units, 'unit')} compared by "
        f"{verdict.strategy}, {verdict.incomplete} marked incomplete, {verdict.late} late; "
        f"{counted(verdict.dead_letters, 'dead letter')}."
    ]
    orders = verdict.orders
    if orders is not None:
        lines.append(
            f"{counted(orders.given, 'order')}: {orders.done} done, {orders.refused} refused, "
            f"{orders.lost_by_heal} lost by the storage, {orders.without_outcome} without an outcome, {orders.with_two} with two."
        )
    groups = verdict.groups
    if groups is not None:
        lines.append(
            f"{counted(groups.messages, 'message')}: {groups.complete:,} complete; {counted(groups.reports, 'group report')}, "
            f"{groups.incomplete:,} marked incomplete."
        )
    for deviation, count in verdict.counts:
        if count:
            lines.append(f"{count} {deviation.value}")
            found = (each for each in verdict.examples if each.deviation is deviation)
            lines.extend(f"    {each.where}: {each.what}" for each in found)
    if verdict.other_units:
        others = counted(verdict.other_units, "unit")
        whose = f"The output also has {others} of another run, or of a simulation that was interrupted"
        if not verdict.found_units:
            whose = f"The expectations are of another run: the output has none of their units, but {others} that they do not name"
        lines.append(f"{whose}. Give the expectations of the run that wrote the input with --expected.")
    elif not verdict.units:
        lines.append("No units are expected: run `simulate` first, or give the file of expectations with --expected.")
    if verdict.is_good:
        lines.append("0 lost, 0 doubled, 0 out of order, 0 with wrong content: every promise was held.")
    return "\n".join(lines)


def render_json(verdict: Verdict) -> str:
    """Return the verdict for programs: one JSON object, `good` first, with counts by deviation."""
    fields = msgspec.structs.asdict(verdict) | {"counts": {each.value: count for each, count in verdict.counts}}
    return msgspec.json.encode({"good": verdict.is_good} | fields).decode()
