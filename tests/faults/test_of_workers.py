"""Workers that are killed and paused under load, and that other workers join and leave."""

from random import Random

import pytest

from tests.faults.choice import each_storage
from tests.faults.conftest import Opens
from tests.faults.strikes import join_and_leave, kill_worker, pause_worker

pytestmark = pytest.mark.slow

STATIC = "ipf.processing-data.ingress.kafka.consumer.kafka-clients.group.instance.id=faults"
LOSSES = ("--losses", "0.5%")
WAITS = "payment-status-notification.resequencer.stash-timeout=30s"


@pytest.mark.parametrize("storage", each_storage(redis=50, infinispan=30, none=(30, 2)))
def test_killed_workers_lose_double_and_misplace_nothing(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    """On Redis the workers are static members: they have their partitions again as soon as they are back."""
    member = (STATIC,) if storage == "redis" else ()
    with campaign("kill -9 of a worker", storage, WAITS, *member, arguments=LOSSES) as under_way:
        for _ in range(times):
            under_way.strike(kill_worker, chance)


@pytest.mark.parametrize("storage", each_storage(redis=10, infinispan=5, none=5))
def test_workers_that_join_and_leave_under_load_lose_double_and_misplace_nothing(
    campaign: Opens, times: int, chance: Random, storage: str
) -> None:
    with campaign("join and leave (two rebalances)", storage, WAITS, arguments=LOSSES) as under_way:
        for _ in range(times):
            under_way.strike(join_and_leave, chance)


@pytest.mark.parametrize("storage", each_storage(redis=4, infinispan=4, none=4))
def test_a_worker_that_was_paused_for_longer_than_its_session_does_no_harm(
    campaign: Opens, times: int, chance: Random, storage: str
) -> None:
    with campaign("SIGSTOP of a worker", storage, WAITS, arguments=LOSSES) as under_way:
        for _ in range(times):
            under_way.strike(pause_worker, chance)
