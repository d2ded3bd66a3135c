"""`resequencer units` beside a real service, on each storage: while it runs, and when it is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from harness.processes.operated_service import RESEQUENCER, OperatedService

from servers.infinispan import InfinispanServer
from servers.redis import RedisServer

pytestmark = pytest.mark.slow

LONG = f"{RESEQUENCER}.stash-timeout=1h"
PARTITION = "IPF_PROCESSING_DATA-0"


def follow_a_wait(service: OperatedService) -> None:
    """A unit waits, is listed and shown, also by a service that stopped, and later it waits no more."""
    service.tell("uow-1", 1, 3)
    service.tell("uow-2", 1)
    service.start()
    service.wait_for_report(lambda report: report.units.waiting == 1, "one unit waits")
    assert_waits(service)
    assert service.stop() == 0
    assert_waits(service)
    service.tell("uow-1", 2)
    service.start()
    service.wait_for("uow-1", 1, 2, 3)
    service.wait_until_idle()
    listed = service.verb("units", "list")
    assert (listed.returncode, listed.stdout) == (0, "")
    story = json.loads(service.verb("units", "show", "uow-1", "--json").stdout)
    assert (story["wait"], story["state"]["handled"], story["state"]["stash"]) == (None, 3, [])
    assert [each["event"] for each in story["left"]["found"]] == ["PaymentReceived", "PaymentValidated", "PaymentAccepted"]
    assert service.verb("units", "show", "uow-9").returncode == 1
    assert service.stop() == 0


def assert_waits(service: OperatedService) -> None:
    listed = service.verb("units", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(each["unit"], each["waits_for"], each["stashed"], each["partition"]) for each in rows] == [
        ("uow-1", "sequence:2", 1, PARTITION)
    ]
    shown = service.verb("units", "show", "uow-1")
    assert shown.returncode == 0, shown.stderr
    assert "waits: for sequence:2" in shown.stdout
    assert "  3  PaymentInitiationFlow  PaymentAccepted  since" in shown.stdout
    assert "PaymentReceived" in shown.stdout


def test_a_wait_is_seen_in_the_embedded_storage(new_service: Callable[..., OperatedService]) -> None:
    follow_a_wait(new_service(LONG))


def test_a_wait_is_seen_in_redis(service_on: Callable[..., OperatedService], redis_server: RedisServer) -> None:
    follow_a_wait(service_on(redis_server, LONG))


@pytest.mark.nightly("processes")
def test_a_wait_is_seen_in_infinispan(service_on: Callable[..., OperatedService], infinispan: InfinispanServer) -> None:
    follow_a_wait(service_on(infinispan, LONG))
