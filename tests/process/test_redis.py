"""The real process on files and a real Redis: killed, and its server killed, paused, emptied beside it."""

import json
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from servers.redis.server import RedisServer, RedisSettings
from status.report import State

pytestmark = pytest.mark.slow

REDIS = f"{NOTIFICATION}.storage.redis"
SIMULATION = ("simulate", "--partitions", "2", "--late-after", "0", "--late", "0", "--duplicates", "5%", "--losses", "1%")

ServiceOn = Callable[..., OperatedService]


@pytest.fixture
def service_on(new_service: Callable[..., OperatedService]) -> ServiceOn:
    """A service on files whose units lie in this server; deadlines and time-outs are short."""

    def make(server: RedisServer, *overrides: str) -> OperatedService:
        return new_service(
            f"{RESEQUENCER}.storage-type=redis",
            f'{REDIS}.url="{server.url}"',
            f"{REDIS}.timeout=500ms",
            f"{RESEQUENCER}.stash-timeout=1s",
            "ipf.processing-data.ingress.batch-size=50",
            *overrides,
        )

    return make


def test_kills_of_the_worker_and_of_its_server_lose_double_and_misplace_nothing(
    service_on: ServiceOn, own_server: Callable[..., Any]
) -> None:
    server = own_server(RedisServer).start()
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "250", "--seed", "7").returncode == 0
    chance = Random(7)
    for victim in ("worker", "both", "server") * 2:
        service.start()
        _wait_for_more(service, chance)
        if victim != "worker":
            server.kill()
        if victim != "server":
            service.kill()
        server.start()
        if victim == "server":
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
    server = own_server(RedisServer).start()
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "300", "--seed", "8").returncode == 0
    service.start()
    chance = Random(8)
    for _ in range(3):
        _wait_for_more(service, chance)
        server.pause()
        report = service.wait_for_report(lambda report: report.state == State("storage unavailable"), "it is missed")
        assert "Timeout" in report.reason
        server.resume()
        service.wait_for_report(lambda report: report.state == State.READY, "it is back")
    _wait_until_idle(service)
    assert service.stop() == 0
    _verify(service)
    assert "possible-duplicate" not in _notifications(service)


def test_a_server_that_forgot_everything_costs_nothing_but_marked_repetitions(
    service_on: ServiceOn, own_server: Callable[..., Any]
) -> None:
    server = own_server(RedisServer, RedisSettings(append="none")).start()
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "300", "--seed", "9").returncode == 0
    service.start()
    _wait_for_more(service, Random(9))
    server.kill()
    server.start()
    _wait_until_idle(service)
    assert service.stop() == 0
    _verify(service)
    assert "possible-duplicate" in _notifications(service)
    assert "keeps no append-only file" in service.log
    assert "does not know the commit that its position stands on" in service.log


def test_units_are_forgotten_once_the_service_was_caught_up_for_the_retention(
    service_on: ServiceOn, redis_server: RedisServer, fresh_name: Callable[[str], str]
) -> None:
    name = fresh_name("forgotten")
    short = (f"{RESEQUENCER}.processing-timeout=500ms", f"{RESEQUENCER}.idle-timeout=1s", f"{RESEQUENCER}.retention=2s")
    service = service_on(redis_server, f"{NOTIFICATION}.storage.namespace={name}", *short)
    service.tell("uow-1", 1, 2)
    service.tell("uow-2", 2)
    service.start()
    with closing(redis_server.client()) as client:
        _wait_until_idle(service)
        wait_until(lambda: not client.keys(f"{{{name}:*:unit:*"), "both are forgotten")
        left = client.keys(f"{{{name}:*")
        assert {key.rpartition(b":")[2] for key in left} == {b"header", b"pending"}
        assert {client.ttl(key) for key in left} == {-1}
    assert service.stop() == 0
    assert (service.sequences("uow-1"), service.sequences("uow-2")) == ([1, 2], [2])


@pytest.mark.parametrize(
    ("overrides", "code", "said"),
    [
        ([f"{REDIS}.password=wrong"], 1, "check storage.redis.username and password"),
        ([f'{REDIS}.url="redis://127.0.0.1:1?x=1"'], 3, f"{REDIS}.url: has options behind"),
        ([f"{REDIS}.tls.ca-file=nowhere.pem"], 3, f"{REDIS}.tls.ca-file: nowhere.pem cannot be read"),
    ],
)
def test_what_waiting_cannot_mend_ends_the_service_with_the_remedy(
    service_on: ServiceOn, redis_server: RedisServer, overrides: list[str], code: int, said: str
) -> None:
    service = service_on(redis_server, *overrides)
    service.tell("uow-1", 1)
    service.start()
    assert service.wait(30) == code
    assert said in service.log


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
