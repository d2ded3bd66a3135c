"""Checks facts and group reports: those that must exist, and those that must not.

What is expected comes from two sources that share no code with the service: the messages of the simulator say which payments
belong together and how many they are; the facts that came out say in which order their statuses were counted.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from notification_service.connectors.line_format import Defect
from notification_service.simulator.expectation import ExpectedMessage, ExpectedUnit
from notification_service.simulator.verify.group_observation import (
    Counts,
    ObservedFact,
    ObservedGroupReport,
    ReplayedGroup,
    group_code,
    number,
    read_fact,
    read_group_report,
    whole_number,
)
from notification_service.simulator.verify.verdict import Deviation, Finding, Findings, GroupCounts


class GroupRules(msgspec.Struct, frozen=True):
    """The service's configuration: after which statuses nothing more is expected of a payment, and how it orders.

    Only if it keeps the order of a payment's envelopes, the last of them says the last status.
    """

    final_statuses: frozenset[str] = frozenset({"ACCC", "RJCT", "CANC"})
    strategy: str = "SEQUENCE"


class Why(StrEnum):
    """Why there is no report on a complete message. `EARLY`: there is one, on as many payments as the message says."""

    NO_TOTAL = "it says no NbOfTxs"
    UNDERSTATED = "its NbOfTxs is too small"
    EARLY = "its NbOfTxs is too small, and so many ended before the others came"
    NOT_ALL_SENT = "not all its payments were sent"
    CONTROL_SUM = "its CtrlSum is not the sum of its payments, or an amount is unknown"
    UNKNOWN = "the message of a payment was lost"
    NOT_FINAL = "a payment has no final status"
    WRONG = "a deviation"


class MessageOutcome(msgspec.Struct, frozen=True):
    """What came of a message. `group` is None if no fact names it; `why` is None if it is complete, and reported."""

    message_id: str
    group: str | None
    total: str | None
    payments: int
    why: Why | None


class _Expected(msgspec.Struct):
    """`is_calm`: all its envelopes came in time and are put in order, so that the last one says its last status."""

    message: ExpectedMessage | None
    last_status: str | None
    is_calm: bool
    amount: str | None


class GroupsCheck:
    """Expectations, facts and reports may be added in any order, but the facts of a group in theirs.

    Memory holds about 1 KB for each payment, and more while it is open.
    """

    def __init__(self, rules: GroupRules) -> None:
        self._finals = rules.final_statuses
        self._strategy = rules.strategy
        self._units: dict[str, _Expected] = {}
        self._messages: dict[ExpectedMessage, list[str]] = {}
        self._wanted: dict[str, dict[str, str | None]] = {}
        self._early: dict[str, list[ObservedFact]] = {}
        self._groups: dict[str, ReplayedGroup] = {}
        self._reports: dict[str, list[ObservedGroupReport]] = {}
        self._flaws: list[Finding] = []
        self.facts = self.reports = self._without_message = self._dead_letters = 0

    @property
    def progress(self) -> tuple[int, int]:
        return self.facts, self.reports

    def outstanding(self) -> int:
        """Return how many facts and reports are still to come. Takes time in proportion to the groups."""
        facts = sum(map(len, self._wanted.values()))
        return facts + sum(self._awaits_report(name, group) for name, group in self._groups.items())

    def expect(self, unit: ExpectedUnit) -> None:
        if unit.unit in self._units:
            return
        message = unit.message
        self._units[unit.unit] = _expected(unit, self._strategy)
        if message is None:
            self._without_message += 1
        else:
            self._messages.setdefault(message, []).append(unit.unit)
        came = [each for each in unit.envelopes if not each.is_lost]
        processes = [each for envelope in came for each in envelope.processes]
        self._wanted[unit.unit] = {each.notification_id: each.status for each in processes if each.notification_id is not None}
        for fact in self._early.pop(unit.unit, ()):
            self._compare(fact)

    def add_fact(self, line: bytes) -> None:
        """Add a line of the facts, without its newline."""
        fact = read_fact(line)
        if fact is None:
            return
        self.facts += 1
        if isinstance(fact, Defect):
            self._flaw(Deviation.UNREADABLE, "a fact", fact.problem)
            return
        if fact.group is not None:
            self._groups.setdefault(fact.group, ReplayedGroup()).apply(fact, self._finals)
        if fact.unit in self._units:
            self._compare(fact)
        else:
            self._early.setdefault(fact.unit, []).append(fact)

    def add_report(self, line: bytes) -> None:
        """Add a line of the reports, without its newline."""
        report = read_group_report(line)
        self.reports += 1
        if isinstance(report, Defect):
            self._flaw(Deviation.UNREADABLE, "a group report", report.problem)
        else:
            self._reports.setdefault(report.group, []).append(report)

    def add_dead_letter(self, line: bytes) -> None:
        """Add a dead letter of the groups. None is expected."""
        del line
        self._dead_letters += 1

    def end(self, findings: Findings, disturbed: Collection[str] = ()) -> None:
        """Report all deviations, after everything was added. Of `disturbed` units an operator changed what is notified."""
        for each in self._found(disturbed):
            findings.add(each)

    def counts(self) -> GroupCounts:
        """Return the totals for the verdict."""
        outcomes = list(self.outcomes())
        incomplete = sum(each.missing is not None for group in self._reports.values() for each in group)
        return GroupCounts(
            len(outcomes), sum(each.why is None for each in outcomes), self.reports, incomplete, self._without_message
        )

    def outcomes(self) -> Iterator[MessageOutcome]:
        """Yield what came of each message, in the order of the expectations."""
        groups = {unit: name for name, group in self._groups.items() for unit in group.payments}
        for message, units in self._messages.items():
            named = next((groups[each] for each in units if each in groups), None)
            why = self._find_why(message, units, None if named is None else self._groups[named], named)
            yield MessageOutcome(message.message_id, named, message.total, len(units), why)

    def _find_why(
        self, message: ExpectedMessage, units: Sequence[str], group: ReplayedGroup | None, name: str | None
    ) -> Why | None:
        total, reports = whole_number(message.total), self._reports.get(name or "", ())
        if group is not None and group.first_through is not None and any(map(_is_complete, reports)):
            return None if len(units) == total else Why.EARLY
        if total is None:
            return Why.NO_TOTAL
        if len(units) != total:
            return Why.UNDERSTATED if len(units) > total else Why.NOT_ALL_SENT
        if group is None or len(group.payments) < total:
            return Why.UNKNOWN
        if group.missing:
            return Why.NOT_FINAL
        return Why.WRONG if group.adds_up else Why.CONTROL_SUM

    # Facts

    def _compare(self, fact: ObservedFact) -> None:
        wanted = self._wanted[fact.unit]
        if fact.notification_id in wanted:
            status = wanted.pop(fact.notification_id)
            if status != fact.status:
                self._flaw(Deviation.FACT_WRONG, fact.unit, f"{fact.notification_id} says {fact.status}, not {status}")
        elif not fact.is_possible_duplicate:
            self._flaw(Deviation.FACT_WRONG, fact.unit, f"{fact.notification_id} ({fact.status}) came twice, or is not expected")

    def _flaw(self, deviation: Deviation, where: str, what: str) -> None:
        self._flaws.append(Finding(deviation, where, what))

    # The end

    def _found(self, disturbed: Collection[str]) -> Iterator[Finding]:
        yield from self._flaws
        if self._dead_letters:
            what = f"{self._dead_letters} facts could not be applied; `resequencer dead-letters` does not list them"
            yield Finding(Deviation.FACT_WRONG, "dead letters of the groups", what)
        for name in self._early:
            yield Finding(Deviation.FACT_WRONG, name, "has facts, but there is no such unit")
        for name, wanted in self._wanted.items():
            if wanted and name not in disturbed:
                what = f"{', '.join(sorted(map(str, wanted.values())))} was sent, but there is no fact of it"
                yield Finding(Deviation.FACT_LOST, name, what)
        yield from self._membership(disturbed)
        for name, group in self._groups.items():
            yield from self._of_group(name, group)
        for name in self._reports.keys() - self._groups.keys():
            yield Finding(Deviation.GROUP_REPORT_UNEXPECTED, name, "there is a report, but no fact names the group")

    def _membership(self, disturbed: Collection[str]) -> Iterator[Finding]:
        """Compare the groups with the messages of the simulator."""
        groups: dict[str, str] = {}
        for name, group in self._groups.items():
            messages = {self._units[each].message for each in group.payments if each in self._units}
            if len(messages) > 1 or None in messages:
                ids = ", ".join(sorted("none" if each is None else each.message_id for each in messages))
                yield Finding(Deviation.FACT_WRONG, name, f"the group has payments of several messages: {ids}")
                continue
            groups |= dict.fromkeys(group.payments, name)
            for message in messages:
                assert message is not None
                stated = group.total, group.control_sum
                if stated != (whole_number(message.total), number(message.control_sum)):
                    what = f"its facts say NbOfTxs and CtrlSum {stated}, its message {message.total} and {message.control_sum}"
                    yield Finding(Deviation.FACT_WRONG, name, what)
        for message, units in self._messages.items():
            names = {groups[each] for each in units if each in groups}
            if len(names) > 1:
                yield Finding(Deviation.FACT_WRONG, message.message_id, f"its payments are in {len(names)} groups")
        for name, unit in self._units.items():
            if unit.is_calm and unit.message is not None and name not in disturbed:
                yield from self._of_calm(name, unit, groups.get(name))

    def _of_calm(self, name: str, unit: _Expected, group: str | None) -> Iterator[Finding]:
        if group is None:
            yield Finding(Deviation.FACT_WRONG, name, "all of it came in time, but no fact says of which message it is")
            return
        payment = self._groups[group].payments[name]
        if payment.status != unit.last_status:
            what = f"its facts end with {payment.status}, not with {unit.last_status}"
            yield Finding(Deviation.FACT_WRONG, name, what)
        amount = number(unit.amount)
        if amount is not None and payment.amount is not None and amount != payment.amount:
            yield Finding(Deviation.FACT_WRONG, name, f"its facts say the amount {payment.amount}, not {amount}")

    def _of_group(self, name: str, group: ReplayedGroup) -> Iterator[Finding]:
        reports = _without_repeats(self._reports.get(name, ()))
        if not reports:
            if group.first_through is not None:
                what = f"its {len(group.payments)} payments were all final, but there is no report"
                yield Finding(Deviation.GROUP_REPORT_MISSING, name, what)
            return
        numbers = [each.number for each in reports]
        if len(set(numbers)) < len(numbers):
            yield Finding(Deviation.GROUP_REPORT_DOUBLED, name, f"there are reports with the numbers {numbers}")
        elif numbers != list(range(1, len(numbers) + 1)):
            yield Finding(Deviation.GROUP_REPORT_MISSING, name, f"there are reports with the numbers {numbers}, in this order")
        for each in reports:
            flaws = list(self._flaws_of(each, group))
            if flaws:
                deviation = Deviation.GROUP_REPORT_WRONG
                if group.first_through is None and each.missing is None and not each.is_closed:
                    deviation = Deviation.GROUP_REPORT_UNEXPECTED
                yield Finding(deviation, name, f"report {each.number}: {'; '.join(flaws)}")
        if self._awaits_report(name, group):
            yield Finding(Deviation.GROUP_REPORT_MISSING, name, "its payments were all final, but no report says so")

    def _awaits_report(self, name: str, group: ReplayedGroup) -> bool:
        """Whether a report on a complete group is due. Once an operator has closed it, only changes are reported, and later."""
        reports = self._reports.get(name, ())
        return group.first_through is not None and not any(_is_complete(each) or each.is_closed for each in reports)

    def _flaws_of(self, report: ObservedGroupReport, group: ReplayedGroup) -> Iterator[str]:
        if whole_number(report.total) != group.total or whole_number(report.said_total) != group.total:
            yield f"it says the totals {report.said_total} and {report.total}, not {group.total}"
        if report.is_amended is not (report.number > 1):
            yield "it is marked amended" if report.is_amended else "it is not marked amended"
        if report.status != report.said_status:
            yield f"GrpSts is {report.status}, and its header {report.said_status}"
        if not _is_complete(report):
            yield from self._flaws_of_incomplete(report, group)
            return
        through = [] if group.first_through is None else [group.first_through, *group.later]
        if report.number == 1:
            through = through[:1]
        if not through:
            yield f"{group.missing} of its payments have no final status, or its numbers are not true, but it is not marked so"
        elif report.counts not in through:
            yield f"it counts {_text(report.counts)}, not {_text(through[-1])}"
        status = group_code(each.status for each in report.counts.statuses)
        is_through = report.counts.final(self._finals) == report.counts.members == group.total
        if report.status != (status if is_through else None):
            yield f"GrpSts is {report.status}, not {status if is_through else None}"

    def _flaws_of_incomplete(self, report: ObservedGroupReport, group: ReplayedGroup) -> Iterator[str]:
        """Yield what is wrong with a report on what is known. Which moment it is of is unknown, but for the last report."""
        members, final = report.counts.members, report.counts.final(self._finals)
        missing = max(group.total or 0, members) - final
        if report.missing is not None and report.missing != missing:
            yield f"it says that {report.missing} are missing, and {missing} are"
        if members > len(group.payments):
            yield f"it counts {members} payments, and there are {len(group.payments)}"
        if report.is_closed or report.missing == group.missing:
            counts = group.counts()
            if (
                members == len(group.payments)
                and final == counts.final(self._finals)
                and report.counts.statuses != counts.statuses
            ):
                yield f"it counts {_text(report.counts)}, not {_text(counts)}"


def _expected(unit: ExpectedUnit, strategy: str) -> _Expected:
    statuses = [each.status for envelope in unit.envelopes for each in envelope.processes if each.status is not None]
    is_calm = not any(each.is_lost or each.late or each.conflicts for each in unit.envelopes)
    is_one_lane = len(unit.flows) == 1 or (unit.numbering == "shared" and strategy == "SEQUENCE")
    is_ordered = is_one_lane and strategy in ("SEQUENCE", "STRICT_SEQUENCE")
    return _Expected(unit.message, statuses[-1] if statuses else None, is_calm and is_ordered, unit.amount)


def _is_complete(report: ObservedGroupReport) -> bool:
    return report.missing is None and not report.is_closed


def _without_repeats(reports: Iterable[ObservedGroupReport]) -> list[ObservedGroupReport]:
    """Leave out possible duplicates of what is there."""
    kept: list[ObservedGroupReport] = []
    for each in reports:
        if not (each.is_possible_duplicate and any(each.number == other.number for other in kept)):
            kept.append(each)
    return kept


def _text(counts: Counts) -> str:
    by_status = ", ".join(f"{each.status} {each.payments} ({each.total})" for each in counts.statuses)
    return by_status + "".join(f"; {name} {status}: {dict(counted)}" for name, status, counted in counts.instructions)
