"""The kinds of simple types in ISO 20022 schemas, as data. Each converts an untrusted JSON value into a valid text.

`conform` returns the text as the schema accepts it, or None if the schema refuses the value. It never raises. `placeholder`
replaces a missing mandatory value; None if the type has no room for it.
"""

import decimal
import re
from datetime import date
from typing import Protocol

import msgspec

NOT_PROVIDED = "NOTPROVIDED"
REPLACEMENT = "\ufffd"

_FORBIDDEN_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DECIMAL = re.compile(r"[+-]?(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))")
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})" + _ZONE)
_DATE_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?" + _ZONE)
_WHITE_SPACE = " \t\r\n"
_LARGEST_INTEGER = 10**18
_MAX_DIGITS = 40
"""More than any type has, on either side of the point: exponents are as long as a sender likes."""


class JsonNumber(str):
    """A JSON number with a fraction or an exponent, in its original digits, because a float would round amounts."""

    __slots__ = ()


class SimpleType(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def placeholder(self) -> str | None: ...

    def conform(self, value: object) -> str | dict[str, str] | None: ...


class Text(msgspec.Struct, frozen=True):
    """A text of 1 to `max_length` code points. A longer text is refused and not cut: half a name is another name."""

    name: str
    max_length: int

    @property
    def placeholder(self) -> str | None:
        return NOT_PROVIDED if len(NOT_PROVIDED) <= self.max_length else None

    def conform(self, value: object) -> str | None:
        if type(value) is not str or len(value) > self.max_length or not value.strip():
            return None
        return value if value.isprintable() else xml_text(value)


class Pattern(msgspec.Struct, frozen=True):
    """A text that matches `pattern` as a whole."""

    name: str
    pattern: re.Pattern[str]
    placeholder: None = None

    def conform(self, value: object) -> str | None:
        return value if type(value) is str and self.pattern.fullmatch(value) else None


class NumericText(msgspec.Struct, frozen=True):
    """A text of digits only. A JSON number is accepted too if it is whole: `1`, `1.0`, `1E0`."""

    name: str
    max_digits: int
    placeholder: None = None

    def conform(self, value: object) -> str | None:
        text = _number_text(value)
        if text is not None and isinstance(value, JsonNumber):
            whole, _, fraction = text.partition(".")
            text = None if fraction.strip("0") else whole
        if text is None or len(text) > self.max_digits:
            return None
        return text if text.isascii() and text.isdigit() else None


class Codes(msgspec.Struct, frozen=True):
    """One of the codes that the schema enumerates."""

    name: str
    codes: frozenset[str]
    placeholder: None = None

    def conform(self, value: object) -> str | None:
        return value if type(value) is str and value in self.codes else None


class Decimal(msgspec.Struct, frozen=True):
    """A decimal number as text, or a JSON number, which may have an exponent and comes out without one.

    Leading zeros, and trailing zeros of the fraction, do not count as digits.
    """

    name: str
    total_digits: int
    fraction_digits: int
    is_signed: bool = True
    placeholder: None = None

    def conform(self, value: object) -> str | None:
        text = _number_text(value)
        match = _DECIMAL.fullmatch(text) if text is not None else None
        if text is None or match is None:
            return None
        whole = (match[1] or "").lstrip("0")
        fraction = (match[2] or match[3] or "").rstrip("0")
        if len(fraction) > self.fraction_digits or len(whole) + len(fraction) > self.total_digits:
            return None
        return text if self.is_signed or text[0] != "-" else None


class Date(msgspec.Struct, frozen=True):
    """A calendar day in the years 1 to 9999, with or without a time zone. With a time of day if `has_time`."""

    name: str
    has_time: bool = False
    placeholder: None = None

    def conform(self, value: object) -> str | None:
        if type(value) is not str:
            return None
        text = value.strip(_WHITE_SPACE)
        match = (_DATE_TIME if self.has_time else _DATE).fullmatch(text)
        return text if match and _is_day(int(match[1]), int(match[2]), int(match[3])) else None


class Indicator(msgspec.Struct, frozen=True):
    """`true` or `false`, as JSON or as text."""

    name: str
    placeholder: None = None

    def conform(self, value: object) -> str | None:
        if value is True or value == "true":
            return "true"
        return "false" if value is False or value == "false" else None


class Amount(msgspec.Struct, frozen=True):
    """An amount with its currency: `{"Ccy": "EUR", "value": "12.50"}`."""

    name: str
    amount: Decimal
    currency: Pattern
    placeholder: None = None

    def conform(self, value: object) -> dict[str, str] | None:
        if not isinstance(value, dict):
            return None
        amount = self.amount.conform(value.get("value"))
        currency = self.currency.conform(value.get("Ccy"))
        return None if amount is None or currency is None else {"Ccy": currency, "value": amount}


def xml_text(text: str) -> str:
    """Return the text with a replacement character for each character that XML 1.0 forbids."""
    return text if text.isprintable() else _FORBIDDEN_IN_XML.sub(REPLACEMENT, text)


def _number_text(value: object) -> str | None:
    if isinstance(value, JsonNumber):
        return _plain(value)
    if isinstance(value, str):
        return str(value).strip(_WHITE_SPACE)
    if type(value) is int and -_LARGEST_INTEGER < value < _LARGEST_INTEGER:
        return str(value)
    return None


def _plain(number: JsonNumber) -> str | None:
    """Return exactly the value, without an exponent and zero without a sign; None if it is beyond all types."""
    mantissa, _, exponent = number.lower().partition("e")
    if not mantissa.strip("-0."):
        return mantissa.removeprefix("-")
    if not exponent:
        return mantissa
    try:
        value = decimal.Decimal(number)
    except decimal.InvalidOperation:  # An exponent of many digits.
        return None
    return format(value, "f") if abs(value.adjusted()) <= _MAX_DIGITS else None


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True
