"""Judges the reports on a group by what the facts lead to. Pure.

A report does not say which facts it stands on. So it is compared with the states that the group had after one fact and the next:

* The report that says first that the group is complete stands on the first state in which it was: the service reports with the
  fact that completes it.
* One that is marked incomplete before that stands on any state before that one.
* One that follows the completion, or that an operator's close led to, stands on any state not before that of the report before.

A state of a group is many counts. Each of them has a share, which is a number, and the fingerprint of the state is the sum of the
shares. So the fingerprint after each fact is a running sum in Spark, however many statuses and payment informations there are.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import NamedTuple

from notification_service.jobs.audit.finding import Deviation
from notification_service.payments.iso20022.codes import ACCEPTED_STATUSES, GROUP_STATUSES
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import Amount


class Completed(NamedTuple):
    """The first state in which a group was complete: its place, its fingerprints, and what it amounts to."""

    place: int
    counts: int
    instruction_counts: int
    total: int | None
    control_units: str | None
    members: int


class Group(NamedTuple):
    """A group by its facts. `partitions` are the first and the last of the facts' partitions. `persons` ordered its close."""

    partitions: tuple[int, int]
    facts: int
    members: int
    completed: Completed | None
    persons: frozenset[str]


class State(NamedTuple):
    """A state with the counts of a report. `fits` if all else that the report says follows from it, too."""

    place: int
    is_complete: bool
    fits: bool


class SeenReport(NamedTuple):
    """A report as it was published, and the `states` of its group with the same counts, in their order."""

    place: int
    number: int
    is_possible_duplicate: bool
    flaw: str | None
    counts_text: str
    counts: int
    instruction_counts: int
    total: int | None
    control_units: str | None
    missing: int | None
    closed_by: str | None
    status: str | None
    states: tuple[State, ...]

    @property
    def says_complete(self) -> bool:
        return self.missing is None and self.closed_by is None


class Judged(NamedTuple):
    """The deviations of a group, each with a sentence. `is_open` if its report may still come.

    `is_judged` is False for a group whose facts are in several partitions: in which order they count is unknown.
    """

    deviations: list[tuple[Deviation, str]]
    is_open: bool = False
    is_judged: bool = True


def judge(group: Group | None, reports: Sequence[SeenReport], read_to: Mapping[int, int]) -> Judged:
    """Judge the reports on a group. `read_to` says up to where the facts of each partition had been counted by the service."""
    if group is None:
        found = [(Deviation.GROUP_REPORT_WITHOUT_FACTS, f"report {each.number} is on a group without facts") for each in reports]
        return Judged(found)
    if group.partitions[0] != group.partitions[1]:
        return Judged([], is_judged=False)
    by_number = _by_number(reports)
    missing = [number for number in range(1, max(by_number, default=0)) if number not in by_number]
    found = [*_doubled(reports), *(_absent(number) for number in missing)]
    if any(each.is_possible_duplicate for each in reports):
        found += _repeated(reports)
    else:
        found += _in_order(group, [by_number[number] for number in sorted(by_number)], missing)
    if group.completed is None or missing or any(each.says_complete or each.closed_by is not None for each in reports):
        return Judged(found)
    if group.completed.place >= read_to.get(group.partitions[0], 0):
        return Judged(found, is_open=True)
    place = _named(group.completed.place)
    what = f"with {place} the last payment of the group ({group.completed.members:,}) became final, and no report says so"
    return Judged([*found, (Deviation.GROUP_REPORT_MISSING, what)])


def _by_number(reports: Sequence[SeenReport]) -> dict[int, SeenReport]:
    """Return each report once; of several with a number, the first that is not marked as a possible duplicate."""
    ordered = sorted(reports, key=lambda each: (each.is_possible_duplicate, each.place))
    return {each.number: each for each in reversed(ordered)}


def _doubled(reports: Sequence[SeenReport]) -> Iterator[tuple[Deviation, str]]:
    seen = set[int]()
    for each in sorted(reports, key=lambda each: each.place):
        if each.is_possible_duplicate:
            continue
        if each.number in seen:
            yield Deviation.GROUP_REPORT_DOUBLED, f"report {each.number} was published more than once"
        seen.add(each.number)


def _absent(number: int) -> tuple[Deviation, str]:
    return Deviation.GROUP_REPORT_MISSING, f"report {number} is not there, although a later one is"


def _repeated(reports: Sequence[SeenReport]) -> Iterator[tuple[Deviation, str]]:
    """Compare reports of which some may be repetitions: the service had lost its counts, and the order says nothing."""
    for each in reports:
        if each.flaw is not None:
            yield _flawed(each)
        elif not any(state.fits for state in each.states):
            yield _unexplained(each)


def _in_order(group: Group, reports: Sequence[SeenReport], missing: Sequence[int]) -> Iterator[tuple[Deviation, str]]:
    lowest, is_complete = -1, False
    for each in reports:
        is_first, is_complete = each.says_complete and not is_complete, is_complete or each.says_complete
        has_gap = any(number < each.number for number in missing)
        if each.flaw is not None:
            yield _flawed(each)
        elif each.closed_by is not None and each.closed_by not in group.persons:
            yield (
                Deviation.GROUP_REPORT_EARLY,
                f"report {each.number} says that {each.closed_by} closed the group; no operator did",
            )
        elif is_first and not has_gap:
            yield from _completion(group.completed, each)
        else:
            fit = [state.place for state in each.states if state.fits and state.place >= lowest]
            if is_complete or each.closed_by is not None or has_gap or group.completed is None:
                places = fit
            else:
                places = [place for place in fit if place < group.completed.place]
            if not places:
                yield _unexplained(each)
            lowest = min(places, default=lowest)
        if is_first and group.completed is not None:
            lowest = max(lowest, group.completed.place)


def _completion(completed: Completed | None, report: SeenReport) -> Iterator[tuple[Deviation, str]]:
    """Compare the report that says first that the group is complete."""
    is_early = any(not state.is_complete for state in report.states)
    if completed is None or (is_early and report.counts != completed.counts):
        what = f"report {report.number} ({report.counts_text}) is not marked incomplete, but its group is not complete"
        yield Deviation.GROUP_REPORT_EARLY, what if completed is None else f"{what} before {_named(completed.place)}"
    elif not any(state.place == completed.place and state.fits for state in report.states):
        names = ", ".join(_differences(completed, report)) or "GrpSts or PmtInfSts"
        what = (
            f"report {report.number} ({report.counts_text}) differs from the facts up to {_named(completed.place)}, with which "
        )
        yield Deviation.GROUP_REPORT_DIFFERS, f"{what}the group became complete ({completed.members:,} payments): {names}"


def _differences(completed: Completed, report: SeenReport) -> Iterator[str]:
    if report.counts != completed.counts:
        yield "NbOfTxsPerSts"
    if report.instruction_counts != completed.instruction_counts:
        yield "OrgnlPmtInfAndSts"
    if report.total != completed.total:
        yield "OrgnlNbOfTxs"
    if report.control_units != completed.control_units:
        yield "OrgnlCtrlSum"


def _flawed(report: SeenReport) -> tuple[Deviation, str]:
    return Deviation.GROUP_REPORT_DIFFERS, f"report {report.number} contradicts itself: {report.flaw}"


def _unexplained(report: SeenReport) -> tuple[Deviation, str]:
    mark = "" if report.missing is None else f", {report.missing:,} missing"
    what = (
        f"report {report.number} ({report.counts_text}{mark}) differs from the facts: after none that it may stand on was it so"
    )
    return Deviation.GROUP_REPORT_DIFFERS, what


def _named(place: int) -> str:
    return f"offset {place} of the facts"


def find_status_of_all(statuses: Collection[str]) -> str | None:
    """Return the GrpSts or PmtInfSts of payments that have these statuses, None if there is none for them."""
    found = set(statuses)
    if len(found) == 1:
        return next(iter(found & GROUP_STATUSES), None)
    if found == {"ACSC", "ACCC"}:
        return "ACSC"
    ended = found & {"RJCT", "CANC"}
    accepted = found & ACCEPTED_STATUSES
    return "PART" if ended and accepted and not found - ended - accepted else None


HEX_DIGITS = 12
"""The digits of the SHA-256 that are a share: 48 bits, so that sums stay within 64 bits."""

SEPARATOR = "\x1f"
NO_SUM = "?"
"""In place of the sum of amounts, where one of them is unknown."""


class Count(NamedTuple):
    """How many payments have a status, of the message or of one of its payment informations.

    `units` is the sum of their amounts in hundred-thousandths of the currency as digits, or NO_SUM. It is empty for payment
    informations, whose sums are in no report; the message's own counts have an empty `instruction`.
    """

    instruction: str
    status: str
    number: int
    units: str


def share_of(count: Count) -> int:
    """Return the share of a count. That of zero payments is zero."""
    text = SEPARATOR.join((count.instruction, count.status, str(count.number), count.units))
    return int(sha256(text.encode()).hexdigest()[:HEX_DIGITS], 16) if count.number else 0


def fingerprint(counts: Iterable[Count]) -> int:
    return sum(map(share_of, counts))


_DIGITS = 5
_MONEY = TYPES["ActiveOrHistoricCurrencyAndAmount"]
assert isinstance(_MONEY, Amount)
_valid_amount = _MONEY.amount.conform


def amount_units(text: str) -> str | None:
    """Return an amount in hundred-thousandths, as digits. None for what ISO 20022 does not allow: such an amount is unknown."""
    valid = _valid_amount(text)
    return None if valid is None else units_of(valid)


def units_of(number: str) -> str:
    """Return a valid number in hundred-thousandths, without needless zeros. A control sum may leave a fraction of them."""
    return f"{Decimal(number).scaleb(_DIGITS).normalize():f}"
