"""Check the marks of notifications by the notifications alone, in runs in which nothing is forgotten."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.service_under_test import Told

_SEQUENCES = ("SEQUENCE", "STRICT_SEQUENCE")


def find_wrong_mark(notifications: Iterable["Told"], strategy: str) -> str | None:
    """Find the first mark that is wrong or missing. With SEQUENCE a unit's flows share one numbering.

    `late` means that a later notification was sent before; with PREVIOUS, the next one. `incomplete` must name nothing that the
    notification holds, and only numbers below its own that were not notified before.
    """
    before: dict[str, list[int]] = {}
    for each in notifications:
        flow = each.identity.split("#")[1] if strategy == "STRICT_SEQUENCE" else ""
        numbers = before.setdefault(f"{each.unit}#{flow}", [])
        problem = _find_wrong_lateness(each, numbers, strategy) or (
            _find_wrong_number(each, numbers) if strategy in _SEQUENCES else _find_wrong_part(each)
        )
        if problem is not None:
            return f"{each.identity} {problem}, after {numbers}"
        numbers.append(each.sequence or 0)
    return None


def _find_wrong_lateness(notification: "Told", before: Sequence[int], strategy: str) -> str | None:
    number = notification.sequence or 0
    is_late = False
    if strategy == "PREVIOUS":
        is_late = number + 1 in before
    elif strategy in (*_SEQUENCES, "WINDOW"):
        is_late = any(each > number for each in before)
    if notification.is_late is is_late:
        return None
    return "is marked late" if notification.is_late else "is not marked late"


def _find_wrong_number(notification: "Told", before: Sequence[int]) -> str | None:
    if notification.incomplete is None:
        return None
    missing = int(notification.incomplete.removeprefix("sequence:"))
    return (
        f"is marked to lack {notification.incomplete}" if missing >= (notification.sequence or 0) or missing in before else None
    )


def _find_wrong_part(notification: "Told") -> str | None:
    missing = set() if notification.incomplete is None else {*notification.incomplete.split(",")}
    return f"is marked to lack {notification.incomplete} and holds it" if missing & {*notification.data} else None
