"""Which words of an error are shown without the role `payments`."""

from __future__ import annotations

import msgspec
import pytest

from notification_service.console.access.identity import Identity, Role
from notification_service.console.dead_letters import MASKED, DeadLetterList, Row, answer_for, error_for, list_for
from resequencer.storage_port import WaitKind, Waits

VIEWER = Identity("eve", frozenset({Role.OPERATOR}), sends_by_itself=False)
PAYER = Identity("pia", frozenset({Role.VIEWER, Role.PAYMENTS}), sends_by_itself=False)
IBAN = "DE89370400440532013000"


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (f"handler own.module:make raised ValueError: {IBAN} is closed", "ValueError"),
        (f"own.module:target raised KeyError: {IBAN!r}", "KeyError"),
        (f"strategy own.module:Ours failed: IndexError: {IBAN}", "IndexError"),
        (f"KeyError: {IBAN}; the service failed on it: report this with its log", "KeyError, a mistake of the service"),
        (f"TransientError: {IBAN} (attempt 3 of 3)", "TransientError"),
        (f"{IBAN}: no such account", "an error"),
        ("Mustermann: no such customer", "an error"),
        (f"account {IBAN} raised an alarm", "an error"),
    ],
)
def test_a_handlers_words_are_for_those_who_may_see_payments(error: str, seen: str) -> None:
    shown = error_for(VIEWER, "handler-failed", error)
    assert shown.startswith(seen)
    assert MASKED in shown
    assert IBAN not in shown
    assert "Mustermann" not in shown
    assert error_for(PAYER, "handler-failed", error) == error


@pytest.mark.parametrize("reason", ["rejected", "unexpected-answer", "attempts-exhausted", "skipped"])
def test_what_a_receiver_answered_is_for_those_who_may_see_payments(reason: str) -> None:
    error = f"me ordered it: it is ill. The last call failed with: HTTP 422: {IBAN} is closed"
    assert error_for(VIEWER, reason, error) == error.partition(": " + IBAN)[0] + f" ({MASKED})"
    assert error_for(VIEWER, reason, "HTTP 422") == "HTTP 422"
    assert error_for(PAYER, reason, error) == error


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (f"HTTP 600: {IBAN}", "HTTP 600"),
        (f"HTTP 99: {IBAN} (after 3 attempts)", "HTTP 99"),
        (f"RemoteProtocolError: illegal status line: bytearray(b'HTTP/1.1 {IBAN}')", "RemoteProtocolError"),
        (f"RemoteProtocolError: RemoteProtocolError(\"illegal header line: b'{IBAN}'\")", "RemoteProtocolError"),
        (f"HTTP 422: {IBAN} RemoteProtocolError: no", "HTTP 422"),
    ],
)
def test_an_answer_that_is_none_of_http_is_masked_too(error: str, seen: str) -> None:
    assert answer_for(VIEWER, error) == f"{seen} ({MASKED})"
    assert answer_for(PAYER, error) == error


def test_our_own_words_are_for_all() -> None:
    assert error_for(VIEWER, "too-large", "the unit's data exceeds its limit") == "the unit's data exceeds its limit"
    mistake = f"KeyError: {IBAN}; the service failed on it: report this with its log"
    assert IBAN not in error_for(VIEWER, "undecodable", mistake)


def test_a_list_is_masked_row_by_row() -> None:
    row = Row("T-0#1", "new", "handler-failed", "uow-1", "T-0@1", 0, f"{IBAN}: no such account")
    found = DeadLetterList((row, row._replace(reason="too-large", error="too large")), 2, {}, {}, "here")
    assert [each.error for each in list_for(PAYER, found).rows] == [row.error, "too large"]
    masked = [each.error for each in list_for(VIEWER, found).rows]
    assert IBAN not in masked[0]
    assert masked[1] == "too large"


def test_what_a_unit_waits_for_names_the_type_of_the_last_error_alone() -> None:
    text = f"attempt 2 of 3, after TransientError: {IBAN} is locked"
    waits = Waits(0, WaitKind.RETRY, 0, text, "SEQUENCE", 1, 1)
    assert waits.shown_waits_for == "attempt 2 of 3, after TransientError"
    plain = msgspec.structs.replace(waits, waits_for="attempt 2 of 3")
    assert plain.shown_waits_for == "attempt 2 of 3"
    missing = msgspec.structs.replace(waits, kind=WaitKind.DEADLINE, waits_for="sequence:3")
    assert missing.shown_waits_for == "sequence:3"
