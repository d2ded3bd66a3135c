"""Commands of groups as JSON."""

import json
from typing import Any

import msgspec
import pytest
from harness.examples import examples
from harness.group_stage import command_record, status_body
from harness.kept_values import KeptValues
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_service.aggregation.core import Processor
from notification_service.aggregation.payments.commands import (
    CloseGroup,
    StatedInstruction,
    StatedMessage,
    StatusFact,
    decode_command,
    encode_close,
)
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import Undecodable

WHOLE = {
    "type": "status",
    "unit": "uow-1",
    "status": "ACSC",
    "late": True,
    "incomplete": "sequence:3",
    "amount": "12.50",
    "currency": "EUR",
    "entity": "DE",
    "original": {
        "OrgnlMsgId": "M",
        "OrgnlMsgNmId": "pain.001.001.09",
        "OrgnlCreDtTm": "T",
        "OrgnlNbOfTxs": "2",
        "OrgnlCtrlSum": "3",
    },
    "instruction": {"OrgnlPmtInfId": "P", "OrgnlNbOfTxs": "1", "OrgnlCtrlSum": "2"},
    "initiatingParty": {"Nm": "Müller"},
    "later": "versions may say more",
}


def test_a_fact_says_all_that_is_known_of_a_status() -> None:
    assert decode_command(json.dumps(WHOLE, ensure_ascii=False).encode()) == StatusFact(
        unit="uow-1",
        status="ACSC",
        late=True,
        incomplete="sequence:3",
        amount="12.50",
        currency="EUR",
        entity="DE",
        original=StatedMessage("M", "pain.001.001.09", "T", "2", "3"),
        instruction=StatedInstruction("P", "1", "2"),
        party=msgspec.Raw('{"Nm": "Müller"}'.encode()),
    )


def test_a_fact_needs_no_more_than_unit_and_status() -> None:
    assert decode_command(b'{"type":"status","unit":"u","status":"RCVD"}') == StatusFact(unit="u", status="RCVD")


def test_a_close_is_read_as_it_was_written() -> None:
    assert decode_command(encode_close("anna", "the sender is gone")) == CloseGroup("anna", "the sender is gone")
    assert json.loads(encode_close("anna", "why")) == {"type": "close", "person": "anna", "because": "why"}


BAD = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "no type": b'{"unit":"u","status":"RCVD"}',
    "another type": b'{"type":"open"}',
    "no unit": b'{"type":"status","status":"RCVD"}',
    "an empty unit": b'{"type":"status","unit":"","status":"RCVD"}',
    "a status that is no code": b'{"type":"status","unit":"u","status":"DONE"}',
    "a number as amount": b'{"type":"status","unit":"u","status":"RCVD","amount":1.5}',
    "no UTF-8": b'{"type":"status","unit":"u","status":"RCVD","initiatingParty":{"Nm":"\xff"}}',
    "too deep": b'{"type":"status","unit":"u","status":"RCVD","initiatingParty":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nobody": b'{"type":"close","person":"","because":"why"}',
    "no reason": b'{"type":"close","person":"anna"}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_anything_else_is_undecodable_and_becomes_a_dead_letter(body: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_command(body)
    turn = Processor(PaymentsOfMessage(PaymentsSettings())).apply(KeptValues(), [command_record("u", body, 1)], 0)
    (letter,) = turn.output
    assert isinstance(letter, DeadLetter)
    assert letter.reason is DeadLetterReason.UNDECODABLE
    assert letter.error.startswith("no command of a group: ")
    assert letter.error.isprintable()
    assert turn.changes == {}


@pytest.mark.parametrize("member", [None, "other"])
def test_a_status_of_another_unit_than_its_member_is_undecodable(member: str | None) -> None:
    record = command_record(member, status_body("u", "ACCC"), 1)
    (letter,) = Processor(PaymentsOfMessage(PaymentsSettings())).apply(KeptValues(), [record], 0).output
    assert isinstance(letter, DeadLetter)
    assert letter.reason is DeadLetterReason.UNDECODABLE
    assert letter.error == f"the status is of the unit 'u', and the member is {member!r}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["ACCC", "2", "status"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WHOLE, "Nm", "Id"]), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(list(WHOLE)), json_values), st.booleans())
@settings(max_examples=examples(50))
def test_any_JSON_is_applied_or_becomes_a_dead_letter(fields: dict[str, Any], is_whole: bool) -> None:
    body = json.dumps((WHOLE if is_whole else {}) | fields).encode()
    turn = Processor(PaymentsOfMessage(PaymentsSettings())).apply(KeptValues(), [command_record("uow-1", body, 1)], 0)
    assert turn.applied == 1 or isinstance(turn.output[0], DeadLetter)
