"""Draws the course of a simulated payment: its events, their flows and their order."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

PAYMENT_INITIATION = "PaymentInitiationFlow"
FRAUD_CHECK = "FraudCheckFlow"

REJECTION = "PaymentRejected"
REASON_CODES = ("AC01", "AC04", "AM04", "BE04", "RC01")

STATUSES = {
    (PAYMENT_INITIATION, "PaymentReceived"): ("RCVD", None),
    (PAYMENT_INITIATION, "PaymentValidated"): ("ACTC", None),
    (PAYMENT_INITIATION, "PaymentAccepted"): ("ACCP", None),
    (PAYMENT_INITIATION, "PaymentPending"): ("PDNG", None),
    (PAYMENT_INITIATION, "SettlementStarted"): ("ACSP", None),
    (PAYMENT_INITIATION, "PaymentSettled"): ("ACSC", None),
    (PAYMENT_INITIATION, "PaymentCompleted"): ("ACCC", None),
    (PAYMENT_INITIATION, REJECTION): ("RJCT", "MS03"),
    (PAYMENT_INITIATION, "PaymentCancelled"): ("CANC", None),
    (FRAUD_CHECK, "FraudCheckPassed"): ("ACCP", None),
    (FRAUD_CHECK, "FraudCheckFailed"): ("RJCT", "FR01"),
}
"""(flow, event) → (status, reason), as in the shipped settings (docs/contract.md, section 8).

A second copy, so that the expectations do not depend on the settings under test.
"""

_BESIDE = ("DebtorAccountChecked", "FundsReserved", "RouteSelected", "LimitsChecked", "CutOffChecked")
"""Events that are not in the settings."""


class Happening(NamedTuple):
    """The events of one envelope, all of one flow; none if the envelope only carries data.

    `reason_code` is the reason that a rejection gives itself, beyond the settings.
    """

    flow: str
    events: tuple[str, ...]
    reason_code: str | None = None


AGAIN = tuple(Happening(PAYMENT_INITIATION, (event,)) for event in ("PaymentPending", *_BESIDE))
"""What may happen any number of times."""


def draw_events(rng: Random, *, two_flows: bool) -> tuple[Happening, ...]:
    """Return the 4 … 12 happenings of a payment in their true order: mostly completed, some rejected, some cancelled."""
    ending = rng.random()
    is_fraud = two_flows and ending < 0.04
    main = _main_events(rng, ending, is_fraud=is_fraud)
    if not two_flows:
        return main
    return _interleaved(rng, main, _fraud_events(rng, is_fraud=is_fraud))


def lengthened(events: Sequence[Happening], envelopes: int, rng: Random, again: Sequence[Happening]) -> tuple[Happening, ...]:
    """Return the events with some of `again` inserted, up to `envelopes`; the first and the last keep their places."""
    more = [rng.choice(again) for _ in range(envelopes - len(events))]
    places = {*rng.sample(range(1, len(events) + len(more) - 1), len(more))}
    happenings = iter(events), iter(more)
    return tuple(next(happenings[place in places]) for place in range(len(events) + len(more)))


def _main_events(rng: Random, ending: float, *, is_fraud: bool) -> tuple[Happening, ...]:
    events = ["PaymentReceived", "PaymentValidated"]
    reason_code = None
    if is_fraud or ending < 0.12:
        events += ["PaymentPending", REJECTION]
        reason_code = rng.choice((None, *REASON_CODES))
    elif ending < 0.17:
        events += [rng.choice(("PaymentAccepted", "PaymentPending")), "PaymentCancelled"]
    else:
        events += ["PaymentAccepted", *rng.choice(((), (), ("PaymentPending",))), "SettlementStarted", "PaymentSettled"]
        events.append("PaymentCompleted")
    for beside in rng.sample(_BESIDE, rng.choice((0, 0, 1, 2))):
        events.insert(rng.randint(2, len(events) - 1), beside)
    return _joined(rng, [_happening(rng, PAYMENT_INITIATION, event, reason_code) for event in events])


def _fraud_events(rng: Random, *, is_fraud: bool) -> tuple[Happening, ...]:
    events = ["FraudCheckStarted", "FraudCheckFailed" if is_fraud else "FraudCheckPassed"]
    if rng.random() < 0.3:
        events.insert(1, "FraudScoreComputed")
    return tuple(Happening(FRAUD_CHECK, (event,)) for event in events)


def _happening(rng: Random, flow: str, event: str, reason_code: str | None) -> Happening:
    if event in _BESIDE and rng.random() < 0.3:
        return Happening(flow, ())
    return Happening(flow, (event,), reason_code if event == REJECTION else None)


def _joined(rng: Random, events: list[Happening]) -> tuple[Happening, ...]:
    """Sometimes put two events of a flow into one envelope; the first and the last are always alone."""
    if len(events) > 5 and rng.random() < 0.1:
        at = rng.randint(1, len(events) - 3)
        one, other = events[at], events[at + 1]
        events[at : at + 2] = [Happening(one.flow, one.events + other.events)]
    return tuple(events)


def _interleaved(rng: Random, main: Sequence[Happening], other: Sequence[Happening]) -> tuple[Happening, ...]:
    """Interleave two flows, each in its own order. The payment's receipt stays first, and its end last."""
    places = {*rng.sample(range(1, len(main) + len(other) - 1), len(other))}
    flows = iter(main), iter(other)
    return tuple(next(flows[place in places]) for place in range(len(main) + len(other)))
