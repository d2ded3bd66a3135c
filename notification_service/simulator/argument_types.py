"""Converters of the command line's arguments."""

import re
from argparse import ArgumentTypeError

from notification_service.simulator.generate.plan import Bursts

_DAY_SECONDS = 86_400
_RATE = re.compile(r"(.+)/(s|min|h)")
_PER_SECOND = {"s": 1, "min": 60, "h": 3_600}


def count(text: str) -> int:
    """Convert a whole number from 0 on."""
    return _whole(text, at_least=0)


def positive(text: str) -> int:
    """Convert a whole number from 1 on."""
    return _whole(text, at_least=1)


def share(text: str) -> float:
    """Convert a share, given as a number from 0 to 1 or in per cent."""
    number = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= number <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share: give a number from 0 to 1, or from 0% to 100%")
    return number


def seconds(text: str) -> int:
    """Convert seconds to milliseconds."""
    number = _number(text.removesuffix("s"))
    if not 0 <= number <= _DAY_SECONDS:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {_DAY_SECONDS}")
    return round(number * 1_000)


def some_seconds(text: str) -> int:
    """Convert seconds, at least 0.1, to milliseconds."""
    milliseconds = seconds(text)
    if milliseconds < 100:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to {_DAY_SECONDS}")
    return milliseconds


def rate(text: str) -> float:
    """Convert a rate to lines per second."""
    match = _RATE.fullmatch(text)
    per_second = _number(match[1]) / _PER_SECOND[match[2]] if match else 0.0
    if not 0.001 <= per_second <= 1e9:
        raise ArgumentTypeError(f"{text!r} is not a rate: give 500/s, 30000/min or 1000/h, and at least 4/h")
    return per_second


def exponent(text: str) -> float:
    number = _number(text)
    if not 0.5 <= number <= 4:
        raise ArgumentTypeError(f"{text!r} is not an exponent from 0.5 to 4")
    return number


def bursts(text: str) -> Bursts:
    """Convert a number of envelopes and the seconds of silence after them."""
    envelopes, separator, silence = text.partition("/")
    if not separator:
        raise ArgumentTypeError(f"{text!r} gives no bursts: 500/30 means 500 envelopes, then 30 seconds of silence")
    return Bursts(positive(envelopes), some_seconds(silence))


def _whole(text: str, *, at_least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= at_least):
        raise ArgumentTypeError(f"{text!r} is not a whole number of {at_least} or more")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a number") from error
