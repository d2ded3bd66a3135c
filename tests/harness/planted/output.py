"""Faults that are planted into the output of a service, each with the one deviation that an audit must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.spark.audited_service import AuditedService, Line, lines_of, write_lines

from notification_service.jobs.audit.finding import Deviation
from resequencer.notification import notification_id

Plant = Callable[[list[Line]], str | None]
"""Changes lines and returns the unit of the change, None if it belongs to no unit."""


class OutputFault(NamedTuple):
    """With `is_of_letters` the lines are those of the dead letters."""

    name: str
    deviation: Deviation
    plant: Plant
    is_of_letters: bool = False

    def strike(self, audited: AuditedService) -> str | None:
        path = audited.dead_letters if self.is_of_letters else audited.notifications
        lines = lines_of(path)
        unit = self.plant(lines)
        write_lines(path, lines)
        return unit


def _pick(lines: list[Line], is_fit: Callable[[Line], bool] = lambda line: True) -> int:
    """Pick a line from the middle of the fit ones, of a unit without marks."""
    ailing = {line["key"] for line in lines if {"late", "incomplete"} & line["headers"].keys()}
    fit = [at for at, line in enumerate(lines) if line["key"] not in ailing and is_fit(line)]
    return fit[len(fit) // 2]


def _marked(lines: list[Line], mark: str) -> Line:
    return next(line for line in lines if mark in line["headers"])


def _drop(lines: list[Line]) -> str:
    return lines.pop(_pick(lines))["key"]


def _drop_incomplete(lines: list[Line]) -> str:
    """Drop the second notification of a release, so that the release itself is still visible."""
    seen = set[str]()
    for at, line in enumerate(lines):
        if "incomplete" in line["headers"]:
            if line["key"] in seen:
                return lines.pop(at)["key"]
            seen.add(line["key"])
    raise AssertionError("no release let out two")


def _drop_release(lines: list[Line]) -> str:
    """Drop all released notifications of a unit in which everything waited."""
    units = dict.fromkeys(line["key"] for line in lines if "incomplete" in line["headers"])
    unit = next(unit for unit in units if all("incomplete" in line["headers"] for line in lines if line["key"] == unit))
    lines[:] = [line for line in lines if line["key"] != unit]
    return unit


def _double(lines: list[Line]) -> str:
    lines.append(lines[_pick(lines)])
    return lines[-1]["key"]


def _swap(lines: list[Line]) -> str:
    """Swap a line with the next line of its unit."""
    one = _pick(lines, lambda line: sum(each["key"] == line["key"] for each in lines) > 2)
    unit = [at for at, line in enumerate(lines) if line["key"] == lines[one]["key"]]
    first, second = unit[0], unit[1]
    lines[first], lines[second] = lines[second], lines[first]
    return lines[first]["key"]


def _report(line: Line) -> Line:
    return line["value"]["CstmrPmtStsRpt"]


def _change_status(lines: list[Line]) -> str:
    line = lines[_pick(lines)]
    payment = _report(line)["OrgnlPmtInfAndSts"]
    payment = payment[0] if isinstance(payment, list) else payment
    transaction = payment["TxInfAndSts"]
    transaction = transaction[0] if isinstance(transaction, list) else transaction
    transaction["TxSts"] = "CANC" if transaction["TxSts"] != "CANC" else "RJCT"
    return line["key"]


def _change_content(lines: list[Line]) -> str:
    line = lines[_pick(lines)]
    _report(line)["OrgnlGrpInfAndSts"]["OrgnlMsgId"] += "X"
    return line["key"]


def _invent(lines: list[Line]) -> str:
    line = _copy(lines[_pick(lines)])
    line["key"] = "uow-invented"
    line["headers"]["notification-id"] = "A" * 32
    lines.append(line)
    return "uow-invented"


def _invent_in_a_unit(lines: list[Line]) -> str:
    line = _copy(lines[_pick(lines)])
    line["headers"] |= {"notification-id": "A" * 32, "source-position": "IPF_PROCESSING_DATA-0@999999999"}
    lines.append(line)
    return line["key"]


def _notify_of_nothing(lines: list[Line]) -> str:
    """Add a notification of a process object that the envelope does not have."""
    line = _copy(lines[_pick(lines)])
    line["headers"]["notification-id"] = notification_id(line["key"], line["headers"]["envelope-id"], 99)
    lines.append(line)
    return line["key"]


def _mark(name: str, value: str) -> Plant:
    def plant(lines: list[Line]) -> str:
        line = lines[_pick(lines)]
        line["headers"][name] = value
        return line["key"]

    return plant


def _unmark(name: str) -> Plant:
    def plant(lines: list[Line]) -> str:
        line = _marked(lines, name)
        del line["headers"][name]
        return line["key"]

    return plant


def _change_mark(lines: list[Line]) -> str:
    line = _marked(lines, "incomplete")
    line["headers"]["incomplete"] = "sequence:99"
    return line["key"]


def _move_position(lines: list[Line]) -> str:
    """Change a source position to that of another notification of the unit."""
    line = lines[_pick(lines)]
    positions = {each["headers"]["source-position"] for each in lines if each["key"] == line["key"]}
    line["headers"]["source-position"] = min(positions - {line["headers"]["source-position"]})
    return line["key"]


def _rename_event(lines: list[Line]) -> str:
    line = lines[_pick(lines)]
    line["headers"]["event-name"] = "PaymentForgotten"
    return line["key"]


def _remove_id(lines: list[Line]) -> None:
    lines.append(_copy(lines[_pick(lines)]))
    del lines[-1]["headers"]["notification-id"]


def _copy(line: Line) -> Line:
    return line | {"headers": dict(line["headers"])}


# Dead letters


def _drop_letter(lines: list[Line]) -> None:
    lines.pop()


def _double_letter(lines: list[Line]) -> None:
    lines.append(lines[0])


def _invent_letter(lines: list[Line]) -> None:
    lines.append(_copy(lines[0]))
    lines[-1]["headers"]["dead-letter-source-position"] = "IPF_PROCESSING_DATA-0@0"


def _blame_the_handler(lines: list[Line]) -> None:
    lines[0]["headers"]["dead-letter-reason"] = "no-unit-of-work" if "undecod" in _reason(lines[0]) else "undecodable"


def _change_letter(lines: list[Line]) -> None:
    line = next(each for each in lines if "value" in each and isinstance(each["value"], str))
    line["value"] += " "


def _reason(line: Line) -> str:
    return str(line["headers"]["dead-letter-reason"])


FAULTS = (
    OutputFault("a notification is dropped", Deviation.LOST, _drop),
    OutputFault("a notification of a release is dropped", Deviation.LOST, _drop_incomplete),
    OutputFault("a release is dropped with all that it let out", Deviation.OVERDUE, _drop_release),
    OutputFault("a notification is written again", Deviation.DOUBLED, _double),
    OutputFault("two notifications of a unit are swapped", Deviation.OUT_OF_ORDER, _swap),
    OutputFault("a notification has another status", Deviation.WRONG_STATUS, _change_status),
    OutputFault("a notification names another message", Deviation.WRONG_CONTENT, _change_content),
    OutputFault("a unit is notified of that never came", Deviation.ORPHAN, _invent),
    OutputFault("a notification names a position where nothing lies", Deviation.ORPHAN, _invent_in_a_unit),
    OutputFault("a process object is notified of that is not there", Deviation.UNEXPECTED, _notify_of_nothing),
    OutputFault("a notification is marked late", Deviation.FALSELY_LATE, _mark("late", "true")),
    OutputFault("a notification is marked incomplete", Deviation.FALSELY_INCOMPLETE, _mark("incomplete", "sequence:1")),
    OutputFault("a late notification has no mark", Deviation.NOT_MARKED_LATE, _unmark("late")),
    OutputFault("an incomplete notification has no mark", Deviation.NOT_MARKED_INCOMPLETE, _unmark("incomplete")),
    OutputFault("an incomplete notification misses something else", Deviation.NOT_MARKED_INCOMPLETE, _change_mark),
    OutputFault("a notification names another record of its unit", Deviation.WRONG_POSITION, _move_position),
    OutputFault("a notification names another event", Deviation.WRONG_HEADERS, _rename_event),
    OutputFault("a notification has no id", Deviation.UNREADABLE, _remove_id),
    OutputFault("a dead letter is dropped", Deviation.DEAD_LETTER_MISSING, _drop_letter, is_of_letters=True),
    OutputFault("a dead letter is written again", Deviation.DEAD_LETTER_DOUBLED, _double_letter, is_of_letters=True),
    OutputFault("a sound record is said to be dead", Deviation.DEAD_LETTER_UNEXPLAINED, _invent_letter, is_of_letters=True),
    OutputFault("a dead letter has another reason", Deviation.DEAD_LETTER_WRONG_REASON, _blame_the_handler, is_of_letters=True),
    OutputFault("a dead letter holds other bytes", Deviation.DEAD_LETTER_CHANGED, _change_letter, is_of_letters=True),
)
