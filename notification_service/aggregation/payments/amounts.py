"""Amounts as texts and as whole numbers, so that sums are exact and do not depend on their order.

The unit is a hundred-thousandth of the currency: ISO 20022 allows an amount five digits of a fraction. Each amount has one plain
text: `0`, `12.50`, `0.00001`.
"""

import re
from decimal import Decimal

from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import Amount

_DIGITS = 5
_UNITS = 10**_DIGITS
_CENTS = 1_000
_PLAIN = re.compile(r"(?:0|[1-9][0-9]{0,12})(?:\.(?:[0-9][1-9]|[1-9]0|[0-9]{2,4}[1-9]))?")

_kind = TYPES["ActiveOrHistoricCurrencyAndAmount"]
assert isinstance(_kind, Amount)
_conform = _kind.amount.conform


def find_plain(text: str) -> str | None:
    """Return the plain text of an amount. None if ISO 20022 allows no such amount: then it is unknown."""
    if _PLAIN.fullmatch(text):
        return text
    valid = _conform(text)
    return None if valid is None else plain_of(int(Decimal(valid) * _UNITS))


def units_of(plain: str) -> int:
    """Return the hundred-thousandths of a plain text."""
    whole, _, fraction = plain.partition(".")
    return int(whole + fraction.ljust(_DIGITS, "0"))


def plain_of(units: int) -> str:
    """Return the plain text of hundred-thousandths."""
    whole, fraction = divmod(units, _UNITS)
    if not fraction:
        return str(whole)
    cents, rest = divmod(fraction, _CENTS)
    return f"{whole}.{fraction:05}".rstrip("0") if rest else f"{whole}.{cents:02}"
