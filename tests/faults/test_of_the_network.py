"""A network between the workers and each server that is slow, silent, and drops connections whole or by half."""

from random import Random

import pytest

from tests.faults.choice import each_storage
from tests.faults.conftest import Opens
from tests.faults.strikes import NETWORK

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("storage", each_storage(redis=20, infinispan=20, none=20))
def test_a_bad_network_costs_nothing(campaign: Opens, times: int, chance: Random, storage: str) -> None:
    patient = "payment-status-notification.resequencer.stash-timeout=3m"
    with campaign("bad network (slow, silent, cut, half closed)", storage, patient, is_relayed=True) as under_way:
        kinds = list(NETWORK.values()) * (times // len(NETWORK))
        chance.shuffle(kinds)
        for strike in kinds:
            under_way.strike(strike, chance)
