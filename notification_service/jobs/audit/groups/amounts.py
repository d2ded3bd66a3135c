"""Amounts and control sums as hundred-thousandths of a currency: ISO 20022 allows an amount five digits of a fraction. Pure."""

from decimal import Decimal

from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import Amount

_DIGITS = 5
_MONEY = TYPES["ActiveOrHistoricCurrencyAndAmount"]
assert isinstance(_MONEY, Amount)
_valid_amount = _MONEY.amount.conform


def amount_units(text: str) -> str | None:
    """Return an amount in hundred-thousandths, as digits. None for what ISO 20022 does not allow: such an amount is unknown."""
    valid = _valid_amount(text)
    return None if valid is None else units_of(valid)


def units_of(number: str) -> str:
    """Return a valid number in hundred-thousandths, without needless zeros. A control sum may leave a fraction of them."""
    return f"{Decimal(number).scaleb(_DIGITS).normalize():f}"
