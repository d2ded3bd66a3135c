"""Orders and outcomes as records: what is written is read, and nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resequencer.order import (
    LONGEST_HOLD_MS,
    Order,
    OrderKind,
    OrderOutcome,
    OrderResult,
    OrderUnreadable,
    Stage,
    decode_order,
    decode_outcome,
    encode_order,
    encode_outcome,
)

_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
_instant = st.integers(0, 4_000_000_000_000)
orders = st.builds(
    Order,
    id=_text,
    kind=st.sampled_from(OrderKind),
    by=_text,
    because=_text,
    at=_instant,
    unit=_text,
    waits_for=_text,
    since=_instant,
    despite_backlog=st.booleans(),
    for_ms=st.integers(1, LONGEST_HOLD_MS),
    until=_instant,
    position=st.integers(0, 2**63 - 1),
    approved_by=st.none() | _text,
    stage=st.none() | st.sampled_from(Stage),
)


@given(orders)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    written = encode_order(order)
    assert b"\n" not in written
    assert decode_order(written) == order


@given(orders, st.sampled_from(OrderResult), _text, _instant)
def test_an_outcome_is_read_as_it_was_written(order: Order, result: OrderResult, text: str, at: int) -> None:
    for each in (order, None):
        outcome = OrderOutcome(order=each, order_offset=7, result=result, text=text, at=at)
        written = encode_outcome(outcome)
        assert b"\n" not in written
        assert decode_outcome(written) == outcome


def test_the_record_of_an_order_is_the_documented_one() -> None:
    order = Order(
        id="7f", kind=OrderKind.RELEASE, by="anna", because="the bank called", at=1_774_740_835_941, unit="u",
        waits_for="sequence:3", since=1_774_740_800_000,
    )  # fmt: skip
    assert msgspec.json.decode(encode_order(order)) == {
        "id": "7f",
        "order": "release",
        "by": "anna",
        "because": "the bank called",
        "at": "2026-03-28T23:33:55.941Z",
        "unit": "u",
        "waits-for": "sequence:3",
        "since": "2026-03-28T23:33:20.000Z",
    }


@pytest.mark.parametrize("value", [b"", b"[]", b'{"result": "done"}', b"\xff", b"[" * 60_000])
def test_what_is_no_outcome_is_refused(value: bytes) -> None:
    with pytest.raises(OrderUnreadable):
        decode_outcome(value)
