"""The real process on files and a real Infinispan: killed, and its server killed, paused, emptied beside it."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from servers.infinispan.server import InfinispanServer
from status.report import State

pytestmark = pytest.mark.slow

INFINISPAN = f"{NOTIFICATION}.storage.infinispan"
SIMULATION = ("simulate", "--partitions", "2", "--late-after", "0", "--late", "0", "--duplicates", "5%", "--losses", "1%")
IN_MEMORY = {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}}

ServiceOn = Callable[..., OperatedService]


@pytest.fixture
def service_on(new_service: Callable[..., OperatedService]) -> ServiceOn:
    """A service on files whose units lie in this server; deadlines and time-outs are short."""

    def make(server: InfinispanServer, *overrides: str) -> OperatedService:
        return new_service(
            f"{RESEQUENCER}.storage-type=cache",
            f'{INFINISPAN}.url="{server.url}"',
            f"{INFINISPAN}.timeout=1s",
            f"{RESEQUENCER}.stash-timeout=1s",
            "ipf.processing-data.ingress.batch-size=50",
            *overrides,
        )

    return make


def test_kills_of_the_worker_and_of_its_server_lose_double_and_misplace_nothing(
    service_on: ServiceOn, own_server: Callable[..., Any]
) -> None:
    server = own_server(InfinispanServer).start()
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "250", "--seed", "7").returncode == 0
    chance = Random(7)
    for number in range(4):
        service.start()
        _wait_for_more(service, chance)
        if number % 2:
            server.kill()
            server.start()
            _wait_for_more(service, chance)
        service.kill()
    service.start()
    _wait_until_idle(service)
    assert service.stop() == 0
    _verify(service)
    assert "possible-duplicate" not in _notifications(service)


def test_a_server_that_was_paused_for_longer_than_the_time_out_is_waited_for_and_nothing_comes_twice(
    service_on: ServiceOn, own_server: Callable[..., Any]
) -> None:
    server = own_server(InfinispanServer).start()
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "150", "--seed", "8").returncode == 0
    service.start()
    _wait_for_more(service, Random(8))
    server.pause()
    report = service.wait_for_report(lambda report: report.state == State("storage unavailable"), "it is missed")
    assert "timed out" in report.reason
    server.resume()
    service.wait_for_report(lambda report: report.state == State.READY, "it is back")
    _wait_until_idle(service)
    assert service.stop() == 0
    _verify(service)
    assert "possible-duplicate" not in _notifications(service)


def test_a_cache_in_memory_whose_server_restarted_costs_nothing_but_marked_repetitions(
    service_on: ServiceOn, own_server: Callable[..., Any]
) -> None:
    server = own_server(InfinispanServer).start()
    server.create_cache("resequencer-state", IN_MEMORY)
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "250", "--seed", "9").returncode == 0
    service.start()
    _wait_for_more(service, Random(9))
    service.kill()
    server.kill()
    server.start()
    service.start()
    _wait_until_idle(service)
    assert service.stop() == 0
    _verify(service)
    assert "possible-duplicate" in _notifications(service)
    assert "it is not on disk: when the server restarts, all state is lost" in service.log
    assert "does not know the commit that its position stands on" in service.log


@pytest.mark.parametrize(
    ("overrides", "code", "said"),
    [
        ([f"{INFINISPAN}.cache=expiring"], 1, "its entries expire"),
        ([f'{INFINISPAN}.url="http://user:pass@localhost"'], 3, f"{INFINISPAN}.url: contains a login"),
        ([f"{INFINISPAN}.tls.ca-file=nowhere.pem"], 3, f"{INFINISPAN}.tls.ca-file: nowhere.pem cannot be read"),
    ],
)
def test_what_waiting_cannot_mend_ends_the_service_with_the_remedy(
    service_on: ServiceOn, infinispan: InfinispanServer, overrides: list[str], code: int, said: str
) -> None:
    with infinispan.client() as client:
        client.post("/rest/v2/caches/expiring", json={"local-cache": {"expiration": {"lifespan": 1_000}}})
    service = service_on(infinispan, *overrides)
    service.tell("uow-1", 1)
    service.start()
    assert service.wait(60) == code
    assert said in service.log
    assert "pass@" not in service.log


def _wait_for_more(service: OperatedService, chance: Random) -> None:
    target = service.output_bytes + chance.randrange(20_000, 100_000)
    wait_until(lambda: service.output_bytes >= target, "more output")


def _wait_until_idle(service: OperatedService) -> None:
    ends = {
        int(file.stem.removeprefix("partition-")): file.stat().st_size for file in service.in_directory.glob("partition-*.jsonl")
    }
    service.wait_for_report(
        lambda report: (
            report.state == State.READY
            and {int(each.partition.rpartition("-")[2]): each.read_to for each in report.partitions} == ends
            and report.units.waiting == 0
        ),
        "everything is read and nothing waits",
    )


def _verify(service: OperatedService) -> None:
    verdict = json.loads(service.verb("verify", "--json").stdout)
    assert verdict["good"], verdict
    assert not any(verdict["counts"].values())


def _notifications(service: OperatedService) -> str:
    return (service.out_directory / "notifications.jsonl").read_text(encoding="utf-8")
