"""Faults that are planted into facts and group reports, each with the one deviation that an audit must find.

Each strikes a group of its own, so that many can be planted at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from harness.spark.audited_service import Line, lines_of, write_lines
from harness.spark.grouped_service import GroupedService

from notification_service.jobs.audit.finding import Deviation
from resequencer.notification import group_report_id


class Struck(NamedTuple):
    """The lines of the service, and the group that is to be struck: complete with its first report, of several payments."""

    facts: list[Line]
    reports: list[Line]
    group: str

    @property
    def report(self) -> Line:
        return next(line for line in self.reports if line["headers"]["group-id"] == self.group)

    @property
    def original(self) -> dict[str, Any]:
        found: dict[str, Any] = self.report["value"]["CstmrPmtStsRpt"]["OrgnlGrpInfAndSts"]
        return found

    def fact(self, status: str) -> Line:
        return next(line for line in self.facts if line["key"] == self.group and line["value"]["status"] == status)


Plant = Callable[[Struck], str | None]
"""Changes lines, and returns the unit of the finding if it is not the group."""


class GroupFault(NamedTuple):
    name: str
    deviation: Deviation
    plant: Plant


def plant_all(service: GroupedService, faults: tuple[GroupFault, ...]) -> list[tuple[str, str]]:
    """Plant the faults, and return the deviations that are to be found, each with its unit or group."""
    facts, reports = lines_of(service.fact_lines), lines_of(service.report_lines)
    groups = _fit(reports)
    assert len(groups) >= len(faults), "too few groups for so many faults"
    planted = []
    for fault, group in zip(faults, groups, strict=False):
        planted.append((fault.deviation.value, fault.plant(Struck(facts, reports, group)) or group))
    write_lines(service.fact_lines, facts)
    write_lines(service.report_lines, reports)
    return sorted(planted)


def _fit(reports: list[Line]) -> list[str]:
    """Return the groups of several payments and payment informations whose only report says that they are complete."""
    several = [line["headers"] for line in reports if "OrgnlPmtInfAndSts" in line["value"]["CstmrPmtStsRpt"]]
    names = [headers["group-id"] for headers in several]
    return [each["group-id"] for each in several if "incomplete" not in each and names.count(each["group-id"]) == 1]


def _drop_report(struck: Struck) -> None:
    struck.reports.remove(struck.report)


def _double_report(struck: Struck) -> None:
    struck.reports.append(struck.report)


def _change_count(struck: Struck) -> None:
    count = struck.original["NbOfTxsPerSts"][0]
    count["DtldNbOfTxs"] = str(int(count["DtldNbOfTxs"]) + 1)


def _change_sum(struck: Struck) -> None:
    struck.original["NbOfTxsPerSts"][0]["DtldCtrlSum"] = "0.01"


def _change_total(struck: Struck) -> None:
    struck.original["OrgnlNbOfTxs"] = struck.report["headers"]["group-total"] = "99"


def _change_status(struck: Struck) -> None:
    struck.original["GrpSts"] = struck.report["headers"]["group-status"] = "RJCT"


def _change_header(struck: Struck) -> None:
    struck.report["headers"]["group-total"] = "98"


def _change_instruction(struck: Struck) -> None:
    first = struck.report["value"]["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]
    first["NbOfTxsPerSts"][0]["DtldNbOfTxs"] = "9"


def _report_early(struck: Struck) -> None:
    """Take the last status of a payment back: the group is not complete, and its report says that it is."""
    fact = struck.fact("ACCC")
    fact["value"]["status"] = "ACSC"


def _amend_to_what_never_was(struck: Struck) -> None:
    amended = _copy(struck.report)
    identifier = group_report_id(struck.group, 2)
    amended["headers"] |= {"group-report": "2", "amended": "true", "notification-id": identifier, "group-status": "PART"}
    amended["value"]["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"] = identifier
    original = amended["value"]["CstmrPmtStsRpt"]["OrgnlGrpInfAndSts"]
    original["GrpSts"], original["NbOfTxsPerSts"][0]["DtldSts"] = "PART", "CANC"
    struck.reports.append(amended)


def _report_on_nothing(struck: Struck) -> str:
    invented = _copy(struck.report)
    identifier = group_report_id("INVENTED", 1)
    invented["headers"] |= {"group-id": "INVENTED", "notification-id": identifier}
    invented["value"]["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"] = identifier
    struck.reports.append(invented)
    return "INVENTED"


def _drop_fact(struck: Struck) -> str:
    fact = struck.fact("RCVD")
    struck.facts.remove(fact)
    return str(fact["value"]["unit"])


def _double_fact(struck: Struck) -> str:
    fact = struck.fact("ACCC")
    struck.facts.append(fact)
    return str(fact["value"]["unit"])


def _invent_fact(struck: Struck) -> str:
    """Add a fact that changes nothing, so that only its notification is missing."""
    fact = _copy(struck.fact("ACCC"))
    fact["headers"]["notification-id"] = "A" * 32
    struck.facts.append(fact)
    return str(fact["value"]["unit"])


def _copy(line: Line) -> Line:
    copied: Line = msgspec.json.decode(msgspec.json.encode(line))
    return copied


FAULTS = (
    GroupFault("a report is dropped", Deviation.GROUP_REPORT_MISSING, _drop_report),
    GroupFault("a report is written again", Deviation.GROUP_REPORT_DOUBLED, _double_report),
    GroupFault("a report has a payment more", Deviation.GROUP_REPORT_DIFFERS, _change_count),
    GroupFault("a report has another sum", Deviation.GROUP_REPORT_DIFFERS, _change_sum),
    GroupFault("a report has another total", Deviation.GROUP_REPORT_DIFFERS, _change_total),
    GroupFault("a report has another status of the group", Deviation.GROUP_REPORT_DIFFERS, _change_status),
    GroupFault("a report has another header than value", Deviation.GROUP_REPORT_DIFFERS, _change_header),
    GroupFault("a report has more of a payment information", Deviation.GROUP_REPORT_DIFFERS, _change_instruction),
    GroupFault("a report is amended to what never was", Deviation.GROUP_REPORT_DIFFERS, _amend_to_what_never_was),
    GroupFault("a group is reported whose payment is not final", Deviation.GROUP_REPORT_EARLY, _report_early),
    GroupFault("a group is reported that never was", Deviation.GROUP_REPORT_WITHOUT_FACTS, _report_on_nothing),
    GroupFault("a fact is dropped", Deviation.FACT_MISSING, _drop_fact),
    GroupFault("a fact is written again", Deviation.FACT_DOUBLED, _double_fact),
    GroupFault("a fact is written of which nobody was told", Deviation.FACT_WITHOUT_NOTIFICATION, _invent_fact),
)
