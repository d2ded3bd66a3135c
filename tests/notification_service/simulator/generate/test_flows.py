import csv
from collections import Counter
from random import Random

from harness.packages import ROOT

from notification_service.simulator.generate.flows import FRAUD_CHECK, PAYMENT_INITIATION, STATUSES, Happening, draw_events

ONE = [draw_events(Random(seed), two_flows=False) for seed in range(3_000)]
TWO = [draw_events(Random(seed), two_flows=True) for seed in range(3_000)]


def events_of(course: tuple[Happening, ...], flow: str | None = None) -> list[str]:
    return [event for each in course if flow in (None, each.flow) for event in each.events]


def test_a_payment_has_four_to_twelve_envelopes():
    sizes = Counter(len(course) for course in ONE + TWO)
    assert min(sizes) >= 4
    assert max(sizes) <= 12
    assert len(sizes) >= 7


def test_a_payment_begins_with_its_receipt_alone():
    assert all(course[0] == Happening(PAYMENT_INITIATION, ("PaymentReceived",)) for course in ONE + TWO)


def test_most_payments_complete_some_are_rejected_some_cancelled():
    endings = Counter(events_of(course)[-1] for course in ONE + TWO)
    assert set(endings) == {"PaymentCompleted", "PaymentRejected", "PaymentCancelled"}
    assert endings["PaymentCompleted"] > 0.7 * len(ONE + TWO)
    assert min(endings.values()) > 0.02 * len(ONE + TWO)


def test_a_rejection_says_a_reason_of_its_own_or_leaves_it_to_the_settings():
    reasons = Counter(course[-1].reason_code for course in ONE + TWO if course[-1].events == ("PaymentRejected",))
    assert None in reasons
    assert len(reasons) >= 4


def test_two_flows_run_side_by_side():
    assert all({each.flow for each in course} == {PAYMENT_INITIATION, FRAUD_CHECK} for course in TWO)
    assert all({each.flow for each in course} == {PAYMENT_INITIATION} for course in ONE)


def test_a_failed_fraud_check_rejects_the_payment():
    failed = [course for course in TWO if "FraudCheckFailed" in events_of(course)]
    assert failed
    assert all(events_of(course)[-1] == "PaymentRejected" for course in failed)


def test_some_events_have_no_row_and_some_envelopes_no_event_and_some_two():
    unknown = [event for course in ONE for each in course for event in each.events if (each.flow, event) not in STATUSES]
    assert unknown
    assert {len(each.events) for course in ONE for each in course} == {0, 1, 2}


def test_the_expected_statuses_are_those_of_the_shipped_settings():
    settings = ROOT / "conf" / "notification-settings.csv"
    with settings.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(each for each in file if not each.startswith("#")))
    shipped = {
        (row["process_flow_name"], row["event_name"]): (row["transaction_status"], row["reason_code"] or None) for row in rows
    }
    assert {key: shipped.get(key) for key in STATUSES} == STATUSES
