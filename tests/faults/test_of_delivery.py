"""Delivery, struck under load: nothing is lost, doubled or overtaken, repeats come under the same key, and the job ends once."""

from random import Random
from typing import Any

import pytest

from notification_service.simulator.receiver.behaviour import Behaviour
from tests.faults.choice import each_storage
from tests.faults.delivery_campaign import (
    PROBE_MS,
    DeliveryCampaign,
    Strike,
    forget_units,
    kill_ledger,
    kill_receiver,
    kill_worker,
    pause_ledger,
    pause_receiver,
    pause_worker,
    revoke_token,
    sleep_receiver,
)

pytestmark = pytest.mark.slow

PLAIN = Behaviour(announcing=True, digest_seconds=0.1, connections=15, rejects=0.05)
HARSH = Behaviour(announcing=True, digest_seconds=0.1, connections=15, rejects=0.05, breaks=0.01, faults=0.02)
UNITS_FOR_A_STRIKE = 30
"""At 150 calls a second, so that the job does not end before the last strike."""

MIX = {
    "sqlite": (kill_worker, kill_receiver, sleep_receiver, forget_units),
    "postgresql": (kill_worker, kill_ledger, kill_receiver, sleep_receiver, forget_units),
}


def strike(under_way: DeliveryCampaign, times: int, strikes: tuple[Strike, ...], chance: Random) -> None:
    """Strike so often, each kind in turn."""
    for number in range(times):
        if not under_way.strike(strikes[number % len(strikes)], chance):
            break


@pytest.mark.parametrize("ledger", each_storage(sqlite=(20, 4), postgresql=(20, 5)))
def test_everything_in_turn(of_delivery: Any, times: int, chance: Random, ledger: str) -> None:
    with of_delivery("all of these in turn", ledger, UNITS_FOR_A_STRIKE * times, HARSH) as under_way:
        strike(under_way, times, MIX[ledger], chance)


@pytest.mark.parametrize("ledger", each_storage(sqlite=20, postgresql=20))
def test_killed_workers(of_delivery: Any, times: int, chance: Random, ledger: str) -> None:
    with of_delivery("kill -9 of a delivery worker", ledger, UNITS_FOR_A_STRIKE * times, HARSH) as under_way:
        strike(under_way, times, (kill_worker,), chance)


@pytest.mark.parametrize("ledger", each_storage(sqlite=3, postgresql=3))
def test_a_worker_that_stood_still_for_longer_than_its_leases(of_delivery: Any, times: int, chance: Random, ledger: str) -> None:
    with of_delivery("SIGSTOP of a delivery worker", ledger, 10 * UNITS_FOR_A_STRIKE * times, HARSH) as under_way:
        strike(under_way, times, (pause_worker,), chance)


@pytest.mark.faults(all=10)
def test_a_killed_ledger(of_delivery: Any, times: int, chance: Random) -> None:
    with of_delivery("kill -9 of PostgreSQL", "postgresql", UNITS_FOR_A_STRIKE * times, HARSH) as under_way:
        strike(under_way, times, (kill_ledger,), chance)


@pytest.mark.faults(all=5)
def test_a_paused_ledger(of_delivery: Any, times: int, chance: Random) -> None:
    with of_delivery("SIGSTOP of PostgreSQL", "postgresql", UNITS_FOR_A_STRIKE * times, HARSH) as under_way:
        strike(under_way, times, (pause_ledger,), chance)


@pytest.mark.parametrize("ledger", each_storage(sqlite=5, postgresql=5))
def test_a_receiver_that_is_killed_and_paused(of_delivery: Any, times: int, chance: Random, ledger: str) -> None:
    with of_delivery("kill -9, SIGSTOP of the receiver", ledger, 2 * UNITS_FOR_A_STRIKE * times, HARSH) as under_way:
        strike(under_way, times, (kill_receiver, pause_receiver), chance)


@pytest.mark.parametrize("ledger", each_storage(sqlite=10, postgresql=10))
def test_a_receiver_that_sleeps_costs_no_attempt_and_one_probe_per_interval(
    of_delivery: Any, times: int, chance: Random, ledger: str
) -> None:
    with of_delivery("the receiver sleeps, or locks out", ledger, UNITS_FOR_A_STRIKE * times, PLAIN) as under_way:
        strike(under_way, times, (sleep_receiver, revoke_token), chance)
        under_way.drain()
        job, gate = under_way.job(), under_way.it.gate()
        assert (job.retries.back_off, job.failed) == (0, 0)
        assert gate.probes <= gate.slept_ms / PROBE_MS + times


@pytest.mark.faults(all=10)
def test_a_receiver_that_forgets(of_delivery: Any, times: int, chance: Random) -> None:
    with of_delivery("the receiver forgets its units", "sqlite", UNITS_FOR_A_STRIKE * times, PLAIN) as under_way:
        strike(under_way, times, (forget_units,), chance)
        under_way.drain()
        assert under_way.job().retries.back_off > 0, "nothing was forgotten"
