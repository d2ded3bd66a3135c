"""The real process on files with its state on a real server, Redis or Infinispan: either is killed, the server also paused
and emptied."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from harness.nightly import at_night
from harness.processes.operated_service import OperatedService
from harness.waiting import wait_until

from notification_service.status.report import State
from servers.infinispan import InfinispanServer
from servers.redis import RedisServer, RedisSettings
from servers.server import Server

pytestmark = pytest.mark.slow
AT_NIGHT = pytest.mark.nightly("processes")

SIMULATION = ("simulate", "--partitions", "2", "--late-after", "0", "--late", "0", "--duplicates", "5%", "--losses", "1%")

OwnServer = Callable[..., Any]
ServiceOn = Callable[..., OperatedService]


def start_redis_without_a_file(own_server: OwnServer) -> Server:
    return own_server(RedisServer, RedisSettings(append="none")).start()


def start_infinispan_with_its_cache_in_memory(own_server: OwnServer) -> Server:
    server: InfinispanServer = own_server(InfinispanServer).start()
    server.create_cache("resequencer-state", {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}})
    return server


@dataclass(frozen=True, slots=True)
class Storage:
    """A kind of server that keeps the state.

    `start_forgetful` starts one that loses everything with its process; the log of a service on it contains `warning`. The reason
    in the status of a service whose server is paused contains `unanswered`.
    """

    kind: type[Server]
    start_forgetful: Callable[[OwnServer], Server]
    warning: str
    unanswered: str


REDIS = Storage(RedisServer, start_redis_without_a_file, "keeps no append-only file", "Timeout")
INFINISPAN = Storage(
    InfinispanServer,
    start_infinispan_with_its_cache_in_memory,
    "it is not on disk: when the server restarts, all state is lost",
    "timed out",
)
on_both = pytest.mark.parametrize("storage", [REDIS, INFINISPAN], ids=lambda storage: storage.kind.name)


@pytest.mark.parametrize("storage", [REDIS, *at_night("processes", INFINISPAN)], ids=lambda storage: storage.kind.name)
def test_kills_of_the_worker_and_of_its_server_lose_double_and_misplace_nothing(
    storage: Storage, service_on: ServiceOn, own_server: OwnServer
) -> None:
    server = own_server(storage.kind).start()
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
    _drain_and_verify(service)
    assert "possible-duplicate" not in _notifications(service)


@AT_NIGHT
@on_both
def test_a_server_that_was_paused_for_longer_than_the_time_out_is_waited_for_and_nothing_comes_twice(
    storage: Storage, service_on: ServiceOn, own_server: OwnServer
) -> None:
    server = own_server(storage.kind).start()
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "300", "--seed", "8").returncode == 0
    service.start()
    chance = Random(8)
    for _ in range(3):
        _wait_for_more(service, chance)
        server.pause()
        report = service.wait_for_report(lambda report: report.state == State("storage unavailable"), "it is missed")
        assert storage.unanswered in report.reason
        server.resume()
        service.wait_for_report(lambda report: report.state == State.READY, "it is back")
    _drain_and_verify(service)
    assert "possible-duplicate" not in _notifications(service)


# A running worker on Infinispan does not notice the loss while it needs nothing but what it has in memory: its counters, which
# survive the restart, still name it as the owner. The next takeover notices it.
@pytest.mark.parametrize(
    ("storage", "is_worker_killed"),
    [
        pytest.param(REDIS, False, id="redis, while the worker runs"),
        pytest.param(REDIS, True, id="redis, while no worker runs", marks=AT_NIGHT),
        pytest.param(INFINISPAN, True, id="infinispan, while no worker runs", marks=AT_NIGHT),
    ],
)
def test_a_server_that_forgot_everything_costs_nothing_but_marked_repetitions(
    storage: Storage, service_on: ServiceOn, own_server: OwnServer, *, is_worker_killed: bool
) -> None:
    server = storage.start_forgetful(own_server)
    service = service_on(server)
    assert service.verb(*SIMULATION, "--units", "300", "--seed", "9").returncode == 0
    service.start()
    _wait_for_more(service, Random(9))
    if is_worker_killed:
        service.kill()
    server.kill()
    server.start()
    if is_worker_killed:
        service.start()
    _drain_and_verify(service)
    assert "possible-duplicate" in _notifications(service)
    assert storage.warning in service.log
    assert "does not know the commit that its position stands on" in service.log


def _wait_for_more(service: OperatedService, chance: Random) -> None:
    target = service.output_bytes + chance.randrange(20_000, 100_000)
    wait_until(lambda: service.output_bytes >= target, "more output")


def _drain_and_verify(service: OperatedService) -> None:
    service.wait_until_idle()
    assert service.stop() == 0
    verdict = json.loads(service.verb("verify", "--json").stdout)
    assert verdict["good"], verdict
    assert not any(verdict["counts"].values())


def _notifications(service: OperatedService) -> str:
    return (service.out_directory / "notifications.jsonl").read_text(encoding="utf-8")
