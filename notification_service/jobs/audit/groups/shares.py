"""Fingerprints of counts, which Spark and Python compute alike. Pure.

A state of a group is many counts. Each of them has a share, which is a number, and the fingerprint of the state is the sum of the
shares. So the fingerprint after each fact is a running sum in Spark, however many statuses and payment informations there are.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

HEX_DIGITS = 12
"""The digits of the SHA-256 that are a share: 48 bits, so that sums stay within 64 bits."""

SEPARATOR = "\x1f"
NO_SUM = "?"
"""In place of the sum of amounts, where one of them is unknown."""


class Count(NamedTuple):
    """How many payments have a status, of the message or of one of its payment informations.

    `units` is the sum of their amounts in hundred-thousandths of the currency as digits, or NO_SUM. It is empty for payment
    informations, whose sums are in no report; the message's own counts have an empty `instruction`.
    """

    instruction: str
    status: str
    number: int
    units: str


def share_of(count: Count) -> int:
    """Return the share of a count. That of zero payments is zero."""
    text = SEPARATOR.join((count.instruction, count.status, str(count.number), count.units))
    return int(sha256(text.encode()).hexdigest()[:HEX_DIGITS], 16) if count.number else 0


def fingerprint(counts: Iterable[Count]) -> int:
    return sum(map(share_of, counts))
