"""Facts leave with the notifications, each once, with any storage; what is suppressed leaves only as a fact."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.driving import wire
from harness.service_under_test import DEADLINE_MS, Service

from notification_service.connectors.line_format import Line, encode_line
from notification_service.payments.notification_settings import NotificationSetting, NotificationSettings
from notification_service.payments.port import VersionedHandler
from notification_service.payments.settings import HandlerSettings, make_handler

FLOW = "PaymentInitiationFlow"
STATUSES = {"PaymentReceived": "RCVD", "PaymentAccepted": "ACCP", "PaymentSettled": "ACSC"}
PARTS = [
    {"objectType": "PAIN_001", "object": {"GrpHdr": {"MsgId": "MSG-1", "CreDtTm": "2026-03-28T10:00:00Z", "NbOfTxs": "2"}}},
    {"objectType": "PAIN_001_PAYMENT_INSTRUCTION", "object": {"PmtInfId": "PMT-1"}},
    {"objectType": "PAIN_001_PAYMENT_TRANSACTION", "object": {"Amt": {"InstdAmt": {"Ccy": "EUR", "value": "12.50"}}}},
]
Make = Callable[..., Service]


def envelope(unit: str, sequence: int, event: str) -> bytes:
    happened = [{"uniqueId": f"{unit}-{sequence}", "object": {"eventName": event, "processFlowName": FLOW}}]
    value = wire(unit, FLOW, sequence, f"{unit}-{sequence}", mdsObjects=PARTS if sequence == 1 else [], processObjects=happened)
    return encode_line(Line(value, unit.encode()))[:-1]


def real_handler(*suppressed: str) -> VersionedHandler:
    rows = [NotificationSetting(FLOW, event, status, is_suppressed=event in suppressed) for event, status in STATUSES.items()]
    return make_handler(HandlerSettings(makes_facts=True), NotificationSettings(rows))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Service] = []

    def make(storage: str, *suppressed: str) -> Service:
        service = Service(tmp_path, storage=storage, acknowledge_handled=storage == "none", has_facts=True)
        service.handler = real_handler(*suppressed)  # type: ignore[assignment]
        made.append(service)
        return service.start()

    yield make
    for service in made:
        service.kill()


def statuses(service: Service, unit: str) -> list[str]:
    return [line["value"]["status"] for line in service.facts if line["value"]["unit"] == unit]


@pytest.mark.parametrize("storage", ["none", "embedded"])
def test_each_status_of_a_payment_leaves_as_a_fact_in_order_and_once(make: Make, storage: str) -> None:
    service = make(storage, "PaymentAccepted")
    events = list(enumerate(STATUSES, 1))
    for partition, unit in enumerate(("a", "b")):
        service.put(*(envelope(unit, number, event) for number, event in events[::-1]), partition=partition)
    service.run()
    for _ in range(2):
        service.restart()
        service.run()
        service.kill()
        service.start()
        service.run()
    assert statuses(service, "a") == statuses(service, "b") == ["RCVD", "ACCP", "ACSC"]
    assert len({(line["key"], line["headers"]["group-total"], line["headers"]["amount"]) for line in service.facts}) == 1
    assert len({line["number"] for line in service.facts}) == 6
    lines = [json.loads(line) for line in (service.directory / "out" / "notifications.jsonl").read_bytes().splitlines()]
    assert sorted((line["key"], line["headers"]["transaction-status"]) for line in lines) == [
        (unit, status) for unit in ("a", "b") for status in ("ACSC", "RCVD")
    ]
    assert {line["headers"]["group-id"] for line in lines} == {line["key"] for line in service.facts}


def test_what_leaves_at_a_deadline_is_a_fact_with_its_mark(make: Make) -> None:
    service = make("embedded")
    service.put(envelope("a", 3, "PaymentSettled"), envelope("a", 1, "PaymentReceived"))
    service.run()
    assert statuses(service, "a") == ["RCVD"]
    service.run_after(DEADLINE_MS)
    assert [line["value"].get("incomplete") for line in service.facts] == [None, "sequence:2"]
    assert service.facts[1]["headers"]["incomplete"] == "sequence:2"
    service.put(envelope("a", 2, "PaymentAccepted"))
    service.run()
    assert service.facts[2]["value"]["late"] is True
    assert service.facts[2]["headers"]["late"] == "true"
    assert service.cycle.metrics.counts["facts"] == 3


def test_facts_that_leave_again_after_the_storage_was_lost_are_marked(make: Make) -> None:
    service = make("embedded")
    service.put(envelope("a", 1, "PaymentReceived"))
    service.run()
    service.kill()
    service.forget_database()
    service.start()
    service.run()
    first, again = service.facts
    assert again["value"] == first["value"]
    assert "possible-duplicate" not in first["headers"]
    assert again["headers"] == first["headers"] | {"possible-duplicate": "true"}


def test_facts_that_were_off_for_a_while_go_on_and_nothing_else_changes(make: Make, tmp_path: Path) -> None:
    service = make("embedded")
    service.put(envelope("a", 1, "PaymentReceived"))
    service.run()
    before = service.facts
    service.stop()
    without = Service(tmp_path)
    without.handler = real_handler()  # type: ignore[assignment]
    without.start()
    without.put(envelope("a", 2, "PaymentAccepted"))
    without.run()
    assert without.facts == before
    assert without.stored_positions == {0: without.input_size()}
    without.stop()
    service.start()
    service.put(envelope("a", 3, "PaymentSettled"))
    service.run()
    assert statuses(service, "a") == ["RCVD", "ACSC"]
    # What was pending in the storage that had missed a run takes two numbers, and is marked.
    assert [line["number"][-2:] for line in service.facts] == ["#2", "#8"]
