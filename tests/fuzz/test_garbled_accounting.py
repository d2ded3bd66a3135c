"""The accounting notices each planted fault, and reports nothing without one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.driving import wire
from harness.garbled.accounting import Accounting

from notification_service.connectors.line_format import Line, encode_line

FLOW = "PaymentInitiationFlow"
NOT_UTF8 = b'{"key-base64":"/w==","headers":[{"name":"a","value":"1"},{"name":"a","value":"2"}],"value-base64":"/wA="}'


def envelope(identity: str, note: int = 0) -> bytes:
    event = {"eventName": "PaymentReceived", "processFlowName": FLOW, "note": note}
    process = [{"uniqueId": identity, "objectType": "PROCESS_FLOW_EVENT", "object": event}]
    return encode_line(Line(wire("u", FLOW, 1, identity, processObjects=process), b"u"))[:-1]


LINES = [envelope("a"), b"no record", envelope("a"), b"", envelope("a", 1), NOT_UTF8, envelope("b")]
STARTS = [sum(len(line) + 1 for line in LINES[:at]) for at in range(len(LINES))]


def letter(at: int, reason: str, record: Line) -> bytes:
    position = f"IPF_PROCESSING_DATA-0@{STARTS[at]}".encode()
    ours = (("dead-letter-reason", reason.encode()), ("dead-letter-error", b"no"), ("dead-letter-source-position", position))
    headers = (*record.headers, *ours, ("dead-letter-at", b"now"))
    return encode_line(Line(record.value, record.key, headers), number=f"IPF_PROCESSING_DATA-0#{at}", verbatim=True)


def notification(at: int) -> bytes:
    return encode_line(Line(b"{}", b"u", (("source-position", f"IPF_PROCESSING_DATA-0@{STARTS[at]}".encode()),)))


NO_RECORD = Line(LINES[1])
CONFLICTING = Line(envelope("a", 1).partition(b'"value":')[2][:-1], b"u")
BINARY = Line(b"\xff\x00", b"\xff", (("a", b"1"), ("a", b"2")))
LETTERS = [letter(1, "undecodable", NO_RECORD), letter(4, "conflicting-duplicate", CONFLICTING), letter(5, "undecodable", BINARY)]
NOTIFICATIONS = [notification(0), notification(6)]

Account = Callable[[list[bytes], list[bytes]], Accounting]


@pytest.fixture
def account(tmp_path: Path) -> Account:
    def account_for(letters: list[bytes], notifications: list[bytes]) -> Accounting:
        (tmp_path / "partition-0.jsonl").write_bytes(b"\n".join(LINES) + b"\n")
        (tmp_path / "dead-letters.jsonl").write_bytes(b"".join(letters))
        (tmp_path / "notifications.jsonl").write_bytes(b"".join(notifications))
        accounting = Accounting(tmp_path, tmp_path)
        accounting.run()
        return accounting

    return account_for


def test_every_record_has_its_fate(account: Account) -> None:
    accounting = account(LETTERS, NOTIFICATIONS)
    assert accounting.fates == {"handled": 2, "duplicates": 1, "conflicting-duplicate": 1, "undecodable": 2}
    assert accounting.records == 6


@pytest.mark.parametrize(
    "letters",
    [
        LETTERS[1:],
        LETTERS[:2],
        [*LETTERS, LETTERS[0]],
        [*LETTERS, letter(6, "undecodable", Line(b"x"))],
        [*LETTERS, letter(2, "conflicting-duplicate", Line(b"x"))],
        [letter(1, "undecodable", Line(b"no recorD")), *LETTERS[1:]],
        [letter(1, "invalid-id", NO_RECORD), *LETTERS[1:]],
        [*LETTERS[:2], letter(5, "undecodable", Line(b"\xff\x00", b"\xff", (("a", b"2"),)))],
        [*LETTERS[:2], letter(5, "undecodable", Line(b"\xff\x00", None, BINARY.headers))],
    ],
)
def test_a_dead_letter_too_few_too_many_or_with_other_bytes_is_noticed(account: Account, letters: list[bytes]) -> None:
    with pytest.raises(AssertionError):
        account(letters, NOTIFICATIONS)


@pytest.mark.parametrize(
    "notifications", [NOTIFICATIONS[1:], [*NOTIFICATIONS, NOTIFICATIONS[0]], [*NOTIFICATIONS, notification(2)], [notification(5)]]
)
def test_a_notification_too_few_or_too_many_is_noticed(account: Account, notifications: list[bytes]) -> None:
    with pytest.raises(AssertionError):
        account(LETTERS, notifications)
