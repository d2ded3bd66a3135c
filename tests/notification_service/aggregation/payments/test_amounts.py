"""Amounts: exact, and each with one text."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.aggregation.payments.head import find_plain, plain_of, units_of

units = st.integers(0, 10**18)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        *(("0", "0"), ("12", "12"), ("12.50", "12.50"), ("12.05", "12.05"), ("0.00001", "0.00001"), ("1.125", "1.125")),
        *(("12.5", "12.50"), ("12.00", "12"), ("007.10", "7.10"), (".5", "0.50"), ("5.", "5"), ("+3", "3"), (" 3 ", "3")),
        *(("1.1000000", "1.10"), ("0.00", "0"), ("123456789012345678", "123456789012345678")),
    ],
)
def test_an_amount_has_one_text(text: str, plain: str) -> None:
    assert find_plain(text) == plain


@pytest.mark.parametrize("text", ["", "x", "-1", "1,5", "1.000001", "1234567890123456789", "1e3", "NaN", "Infinity", "١"])
def test_what_ISO_allows_no_amount_to_be_is_unknown(text: str) -> None:
    assert find_plain(text) is None


@given(units)
def test_a_plain_text_is_read_back_and_is_plain(amount: int) -> None:
    text = plain_of(amount)
    assert units_of(text) == amount
    assert Decimal(text) * 100_000 == amount
    if amount < 10**17:
        assert find_plain(text) == text


@given(st.lists(units, min_size=1))
def test_a_sum_is_exact(amounts: list[int]) -> None:
    total = sum(units_of(plain_of(each)) for each in amounts)
    assert units_of(plain_of(total)) == sum(amounts)
