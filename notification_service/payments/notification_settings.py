"""The notification settings: the status, reason and text for an event of a process flow."""

import csv
from collections.abc import Iterable, Iterator
from textwrap import wrap

import msgspec

from notification_service.events.identifiers import shown
from notification_service.payments.iso20022.codes import NARRATIVE, STATUS_REASONS, TRANSACTION_STATUSES
from notification_service.payments.iso20022.simple_types import xml_text
from resequencer.errors import ConfigurationError

COLUMNS = ("process_flow_name", "event_name", "transaction_status", "reason_code", "additional_information")
LONGEST_LINE = 105
"""The longest line of AddtlInf (Max105Text), in characters."""


class NotificationSetting(msgspec.Struct, frozen=True):
    """A row. `additional_information` is already split into lines that the schema allows, between words if possible.

    `reason_words` has the meaning of `reason_code` from the lookups, split likewise. `is_suppressed` is true if the event must
    not cause a notification.
    """

    process_flow_name: str
    event_name: str
    transaction_status: str
    reason_code: str | None = None
    additional_information: tuple[str, ...] = ()
    reason_words: tuple[str, ...] = ()
    is_suppressed: bool = False


class NotificationSettings:
    """The rows by process flow and event."""

    def __init__(self, rows: Iterable[NotificationSetting]) -> None:
        self._rows = {(row.process_flow_name, row.event_name): row for row in rows}

    def find(self, process_flow_name: str | None, event_name: str | None) -> NotificationSetting | None:
        """Return the row of an event, None if the event causes no notification."""
        if process_flow_name is None or event_name is None:
            return None
        return self._rows.get((process_flow_name, event_name))

    def __iter__(self) -> Iterator[NotificationSetting]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


def parse_notification_settings(lines: Iterable[str], file: str) -> NotificationSettings:
    """Parse the lines of a CSV file with a header (docs/contract.md, section 8).

    Blank lines are skipped. `file` is the file's name for errors.

    Raises:
        ConfigurationError: With `file:line`, the value and the remedy.
    """
    reader = csv.reader(_without_byte_order_mark(lines), strict=True)
    rows: dict[tuple[str, str], NotificationSetting] = {}
    header: list[str] | None = None
    for cells in _records(reader, file):
        place = f"{file}:{reader.line_num}"
        if header is None:
            header = _check_header(cells, place)
        elif any(cells):
            row = _parse_row(cells, place)
            key = (row.process_flow_name, row.event_name)
            if key in rows:
                raise ConfigurationError(place, f"a second row for {shown(','.join(key))}; keep one of the two")
            rows[key] = row
    if header is None:
        raise ConfigurationError(f"{file}:1", f"the file is empty; its first line must be {','.join(COLUMNS)}")
    return NotificationSettings(rows.values())


def _without_byte_order_mark(lines: Iterable[str]) -> Iterator[str]:
    """Remove the byte order mark. With it, a quoted first cell would not begin with its quote."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


def _records(reader: Iterator[list[str]], file: str) -> Iterator[list[str]]:
    """Yield the cells of each record without surrounding white space."""
    try:
        for cells in reader:
            yield [cell.strip() for cell in cells]
    except csv.Error as error:
        line = getattr(reader, "line_num", 0)
        raise ConfigurationError(f"{file}:{line}", f"not CSV ({error}); quote a cell that holds a comma or a quote") from error


def _check_header(cells: list[str], place: str) -> list[str]:
    if tuple(cells) != COLUMNS:
        raise ConfigurationError(place, f"the header is {shown(','.join(cells))}; it must be {','.join(COLUMNS)}")
    return cells


def _parse_row(cells: list[str], place: str) -> NotificationSetting:
    if len(cells) != len(COLUMNS):
        problem = f"{len(cells)} cells instead of {len(COLUMNS)} in {shown(','.join(cells))}; quote a cell that holds a comma"
        raise ConfigurationError(place, problem)
    flow, event, status, reason, information = cells
    if not flow or not event:
        raise ConfigurationError(place, f"process_flow_name {shown(flow)} and event_name {shown(event)} must not be empty")
    if status not in TRANSACTION_STATUSES:
        problem = f"transaction_status {shown(status)} is no ISO code; one of {' '.join(sorted(TRANSACTION_STATUSES))}"
        raise ConfigurationError(place, problem)
    if reason and reason not in STATUS_REASONS:
        problem = f"reason_code {shown(reason)} is in no ISO set of status reasons (like MS03); leave it empty for none"
        raise ConfigurationError(place, problem)
    lines = split_information(information)
    if reason == NARRATIVE and not lines:
        problem = f"reason_code {shown(reason)} is a narrative, and additional_information is empty; ISO 20022 demands it there"
        raise ConfigurationError(place, f"{problem}: fill it in, or use another code")
    return NotificationSetting(flow, event, status, reason or None, lines)


def split_information(text: str) -> tuple[str, ...]:
    """Split a text into lines of at most 105 characters, between words. Only a word longer than a line is split."""
    return tuple(wrap(xml_text(text), LONGEST_LINE, break_on_hyphens=False))
