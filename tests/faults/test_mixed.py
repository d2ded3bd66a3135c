"""All strikes together, one on top of another."""

from random import Random

import pytest

from tests.faults.choice import each_storage
from tests.faults.conftest import Opens
from tests.faults.strikes import (
    NETWORK,
    join_and_leave,
    kill_broker,
    kill_storage,
    kill_worker,
    pause_broker,
    pause_storage,
    pause_worker,
)

pytestmark = pytest.mark.slow

FIRST = (kill_worker, kill_broker, kill_storage, pause_worker, NETWORK["connections reset"])
"""The strikes of the short form, in a random order each time."""

REST = (join_and_leave, pause_broker, pause_storage, *NETWORK.values(), kill_worker, kill_worker, kill_worker)
OF_STORAGES = (kill_storage, pause_storage)


@pytest.mark.parametrize("storage", each_storage(redis=(20, 5, 5), infinispan=(20, 5), none=20))
def test_whatever_happens_nothing_is_lost_doubled_or_misplaced(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    patient = "payment-status-notification.resequencer.stash-timeout=3m"
    first = [each for each in FIRST if storage != "none" or each not in OF_STORAGES]
    rest = [each for each in REST if storage != "none" or each not in OF_STORAGES]
    strikes = first[:times] + [chance.choice([*first, *rest]) for _ in range(times - len(first))]
    chance.shuffle(strikes)
    with campaign("mixture", storage, patient, is_relayed=True) as under_way:
        for strike in strikes:
            under_way.strike(strike, chance)
