"""Units that orders are given to."""

from harness.driving import Driven, Envelopes, drive

from resequencer.order import OrderOutcome, OrderResult

HOUR = 3_600_000


def waiting(envelopes: Envelopes, *numbers: int, strategy: str = "SEQUENCE", **settings: int) -> Driven:
    """Return a unit in which these numbers wait; it goes through its stored form before each turn."""
    unit = drive(strategy, **settings)
    unit.reincarnates = True
    unit.arrive(*(envelopes(number) for number in numbers))
    return unit


def under_retry(envelopes: Envelopes, error: Exception) -> Driven:
    """Return a unit whose head 1 is under retry, and 2 waits behind it."""
    unit = drive("SEQUENCE")
    unit.reincarnates = True
    head = envelopes(1)
    unit.handler.fail(head, error)
    unit.arrive(head, envelopes(2))
    return unit


def result(outcome: OrderOutcome | None) -> OrderResult | None:
    return None if outcome is None else outcome.result
