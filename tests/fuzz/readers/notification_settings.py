"""Target `notification-settings`: any file is a table of rows, or refused with its line, its value and the remedy."""

import csv
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz.scratch import scratch

from notification_service.events.pass_through import PAYMENTS
from notification_service.events.settings import IPF
from notification_service.payments.iso20022.codes import STATUS_REASONS, TRANSACTION_STATUSES
from notification_service.payments.iso20022.simple_types import xml_text
from notification_service.payments.notification_settings import (
    COLUMNS,
    NotificationSetting,
    NotificationSettings,
    parse_notification_settings,
)
from notification_service.wiring.composition import load_notification_settings
from resequencer.errors import ConfigurationError

SHIPPED = Path(__file__).parents[3] / "conf" / "notification-settings.csv"
TOKENS = (
    ",".join(COLUMNS).encode(),
    b"RJCT",
    b"MS03",
    b"ACCP",
    b"NARR",
    b",,,,",
    b'"",',
    b'""',
    b"\r\n",
    b"\x0c",
    b"\x85",
    b"\x1c",
    b"F,E,ACCP,,\n",
)

_directory = scratch()
_FILE = Path(_directory.name) / "settings.csv"


def check(data: bytes) -> None:
    """Check the bytes as a settings file.

    * It is read or refused with a `ConfigurationError` of one printable line that names the file and says what to do.
    * Every row has a flow, an event and codes of the ISO sets, and lines of 1 to 105 characters that XML allows; a narrative
      reason has at least one.
    * A file without quotes says what its cells say when they are cut at the commas.
    * What was read, written as CSV, reads the same.
    """
    _FILE.write_bytes(data)
    notification = SimpleNamespace(settings=_FILE, handler=PAYMENTS)
    configuration: Any = SimpleNamespace(notification=notification, ingress=SimpleNamespace(events=SimpleNamespace(format=IPF)))
    try:
        settings = load_notification_settings(configuration)
    except ConfigurationError as error:
        _check_refusal(error)
        return
    for row in settings:
        _check_row(row)
    if b'"' not in data:
        _check_cells(settings, data.decode("utf-8-sig"))
    written = parse_notification_settings(StringIO(_written(settings)), "written")
    assert list(map(_said, written)) == list(map(_said, settings))


def _check_refusal(error: ConfigurationError) -> None:
    assert str(_FILE) in str(error), error
    assert str(error).isprintable(), error
    assert len(str(error)) < 500, error


def _check_row(row: NotificationSetting) -> None:
    assert row.process_flow_name.strip()
    assert row.event_name.strip()
    assert row.transaction_status in TRANSACTION_STATUSES
    assert row.reason_code is None or row.reason_code in STATUS_REASONS
    assert row.reason_code != "NARR" or row.additional_information
    for line in row.additional_information:
        assert 1 <= len(line) <= 105
        assert not any(each < " " and each not in "\t\n\r" for each in line)


def _check_cells(settings: NotificationSettings, text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    rows = [tuple(cell.strip() for cell in line.split(",")) for line in lines if line]
    assert [(*row[:4], _letters(xml_text(row[4]))) for row in rows[1:] if any(row)] == list(map(_said, settings))


def _said(row: NotificationSetting) -> tuple[str, ...]:
    information = _letters("".join(row.additional_information))
    return row.process_flow_name, row.event_name, row.transaction_status, row.reason_code or "", information


def _letters(text: str) -> str:
    """Return the text without white space, which may become a line break."""
    return "".join(text.split())


def _written(settings: NotificationSettings) -> str:
    file = StringIO()
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for row in settings:
        words = " ".join(row.additional_information)
        writer.writerow((row.process_flow_name, row.event_name, row.transaction_status, row.reason_code or "", words))
    return file.getvalue()


def seeds() -> list[bytes]:
    """Yield the shipped file, and one with quotes, comments of odd lengths and line breaks."""
    header = ",".join(COLUMNS).encode()
    rows = (
        b'\r\n"F, 1","E ""x""",RJCT,MS03,"one, two\r\nthree '
        + b"word " * 60
        + b'"\r\n\r\n F , E2 ,ACCP, , '
        + b"x" * 210
        + b"\r\n"
    )
    return [SHIPPED.read_bytes(), b"\xef\xbb\xbf" + header + rows, header + b"\nF,E,ACSC,,\n,,,,\nG,E,ACCC,NARR,because\n"]
