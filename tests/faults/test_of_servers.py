"""The broker and the storages, killed and paused."""

from random import Random

import pytest
from harness.waiting import linger, wait_until

from servers.redis import RedisServer
from tests.faults.choice import each_storage
from tests.faults.conftest import Opens
from tests.faults.stage import LONGEST_WAIT_SECONDS, Stage
from tests.faults.strikes import kill_broker, kill_storage, kill_storage_and_worker, pause_broker, pause_storage

pytestmark = pytest.mark.slow

PATIENT = "payment-status-notification.resequencer.stash-timeout=3m"
"""A stash time-out that is longer than a strike can delay the feeder, so that no wait ends before its envelope comes."""

AWAY_SECONDS = 120
ROOM_BYTES = 1 << 18


@pytest.mark.parametrize("storage", each_storage(redis=10, infinispan=5, none=5))
def test_a_killed_broker_costs_nothing(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    with campaign("kill -9 of the broker", storage, PATIENT) as under_way:
        for _ in range(times):
            under_way.strike(kill_broker, chance)


@pytest.mark.faults(all=10)
@pytest.mark.parametrize("storage", ["redis", "redis everysec", "infinispan", "infinispan in memory"])
def test_a_killed_storage_costs_nothing_but_what_it_has_forgotten_itself(
    campaign: Opens, times: int, chance: Random, storage: str
) -> None:
    with campaign("kill -9 of the storage (half: and of a worker)", storage, PATIENT) as under_way:
        for number in range(times):
            under_way.strike(kill_storage_and_worker if number % 2 else kill_storage, chance)


@pytest.mark.parametrize("storage", each_storage(redis=4, none=4))
def test_a_paused_broker_costs_nothing(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    with campaign("SIGSTOP of the broker", storage, PATIENT) as under_way:
        for _ in range(times):
            under_way.strike(pause_broker, chance)


@pytest.mark.parametrize("storage", each_storage(redis=4, infinispan=4))
def test_a_paused_storage_costs_nothing(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    with campaign("SIGSTOP of the storage", storage, PATIENT) as under_way:
        for _ in range(times):
            under_way.strike(pause_storage, chance)


@pytest.mark.parametrize("storage", each_storage(redis=1, infinispan=1, none=1))
def test_a_broker_that_is_away_for_two_minutes_is_waited_for(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    def be_away(stage: Stage, _: Random) -> None:
        stage.broker.kill()
        wait_until(lambda: stage.report.state.endswith("unavailable"), "it is missed", LONGEST_WAIT_SECONDS, 0.1)
        linger(AWAY_SECONDS)  # The length of the outage is what is tried.
        assert stage.report.state.endswith("unavailable")
        stage.broker.start(LONGEST_WAIT_SECONDS)

    with campaign("broker away for two minutes", storage, PATIENT) as under_way:
        for _ in range(times):
            under_way.strike(be_away, chance)


@pytest.mark.faults(all=3, night=1)
def test_a_full_redis_is_waited_for_and_status_says_so(campaign: Opens, times: int, chance: Random) -> None:
    def be_full(stage: Stage, chance: Random) -> None:
        limit_memory(stage.storage, leaves=chance.randrange(ROOM_BYTES))
        wait_until(lambda: stage.report.state == "storage unavailable", "the service waits", LONGEST_WAIT_SECONDS, 0.1)
        wait_until(lambda: says_it_is_full(stage), "status says why", LONGEST_WAIT_SECONDS, 0.1)
        limit_memory(stage.storage, leaves=None)

    with campaign("full Redis (maxmemory, noeviction)", "redis", PATIENT) as under_way:
        for _ in range(times):
            under_way.strike(be_full, chance)


def says_it_is_full(stage: Stage) -> bool:
    status = stage.service.verb("status", seconds=LONGEST_WAIT_SECONDS)
    return status.returncode == 1 and "its memory is full (maxmemory)" in status.stdout


def limit_memory(server: RedisServer, leaves: int | None) -> None:
    """Limit the memory to what is used plus `leaves` bytes; remove the limit if `leaves` is None."""
    client = server.client()
    try:
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", 0 if leaves is None else used + leaves)
    finally:
        client.close()
