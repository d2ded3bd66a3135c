"""Delivery workers beside a service: what the service sends is delivered while it runs, whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until

from notification_service.simulator.receiver.check import compare
from servers.receiver import ReceiverServer

pytestmark = pytest.mark.slow
_DELIVERY = f"{NOTIFICATION}.delivery"


@pytest.fixture
def service(new_service: Callable[..., OperatedService], receiver: ReceiverServer) -> OperatedService:
    tracker = f'{_DELIVERY}.receivers {{ tracker {{ url = "{receiver.url}", suspension.probe = 100ms }} }}'
    return new_service(tracker, f"{_DELIVERY}.worker {{ count = 2, poll = 50ms, most-poll = 200ms }}")


def status(service: OperatedService) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(service.verb("status", "--json").stdout)
    return fields


def delivering(service: OperatedService) -> list[int]:
    """Return the process ids of the delivery workers that deliver."""
    found = status(service).get("delivery_workers", [])
    return [each["process_id"] for each in found if each["process_id"] is not None and each["problem"] is None]


def taken(receiver: ReceiverServer) -> int:
    return int(receiver.counts()["taken"])


def has_ended(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return False
    return True


def pairs(service: OperatedService) -> list[tuple[str, str]]:
    return [(each["key"], each["headers"]["notification-id"]) for each in service.notifications()]


def test_what_the_service_sends_is_delivered_although_a_delivery_worker_is_killed(service, receiver):
    service.start(alone=False)
    wait_until(lambda: len(delivering(service)) == 2, "both deliver")
    for unit in range(20):
        service.tell(f"uow-{unit}", 2, 1, 3)
    wait_until(lambda: taken(receiver) > 0, "it delivers")
    before = delivering(service)
    os.kill(before[0], signal.SIGKILL)
    for unit in range(20):
        service.tell(f"uow-{unit}", 4)
    wait_until(lambda: taken(receiver) == 80, "all is delivered")
    wait_until(lambda: len(delivering(service)) == 2 and delivering(service) != before, "it is started again")
    assert service.process is not None
    assert service.process.poll() is None, "the service goes on"
    workers = delivering(service)
    assert service.stop() == 0
    assert all(has_ended(each) for each in workers)
    found = compare(receiver.data, pairs(service))
    assert found.is_good, found
    assert "delivery worker 0 does not run" in service.log or "delivery worker 1 does not run" in service.log


def test_the_status_tells_of_a_receiver_that_sleeps_and_of_a_worker_that_cannot_run(service, receiver):
    receiver.behave(asleep=True, retry_after=1)
    service.start(alone=False)
    service.tell("uow-1", 1, 2)
    shut = lambda: [each for each in status(service).get("gates", []) if not each["is_open"] and each["waiting"] == 2]  # noqa: E731
    (gate,) = wait_until(shut, "its gate is shut, and both wait")
    assert gate["receiver"] == "tracker"
    assert gate["since"] < gate["probe_at"]
    # A worker that cannot read the ledger for a moment reports that in place of the gates.
    lines = lambda start: [line for line in service.verb("status").stdout.splitlines() if line.startswith(start)]  # noqa: E731
    (line,) = wait_until(lambda: lines("receiver tracker: shut since "), "people read it, too")
    assert "2 waiting, " in line
    assert "currently suspended" in line
    wait_until(lambda: lines("delivery worker 1 (process ")[0].endswith(": delivers"), "the other worker delivers")
    receiver.behave(asleep=False)
    wait_until(lambda: taken(receiver) == 2, "it is awake")
    wait_until(lambda: status(service)["gates"][0]["is_open"], "the gate is open")
    assert service.stop() == 0


def test_a_ledger_that_cannot_be_used_stops_delivery_and_not_the_service(service):
    (service.directory / "no-ledger").mkdir()
    service.start("payment-status-notification.delivery.ledger.file=no-ledger", alone=False)
    service.tell("uow-1", 1, 2, 3)
    service.wait_for("uow-1", 1, 2, 3)

    def problems() -> list[str]:
        return [each["problem"] or "" for each in status(service).get("delivery_workers", [])]

    wait_until(lambda: all("is not available" in each for each in problems()) and len(problems()) == 2, "the note")
    assert service.stop() == 0
