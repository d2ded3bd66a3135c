"""The payments of messages, struck under load: each report leaves once, with counts as the facts have them."""

from random import Random
from typing import Any

import pytest

from tests.faults.group_campaign import kill_aggregation_worker, kill_only_worker, lose_copies, pause_aggregation_worker
from tests.faults.strikes import kill_broker, kill_worker, pause_broker, pause_worker

pytestmark = pytest.mark.slow

UNITS_FOR_A_STRIKE = 50
"""Of 8 envelopes each, at 150 or 200 envelopes a second."""

MIX = (kill_aggregation_worker, kill_worker, kill_broker, pause_aggregation_worker)
"""The first three are those of the night."""

REST = (*MIX, lose_copies, pause_worker, pause_broker, kill_aggregation_worker, kill_worker)


@pytest.mark.faults(all=16, night=3)
def test_whatever_happens_each_report_leaves_once_with_right_counts(of_groups: Any, times: int, chance: Random) -> None:
    strikes = [*MIX[:times], *(chance.choice(REST) for _ in range(times - len(MIX)))]
    with of_groups("mixture", "kafka", UNITS_FOR_A_STRIKE * times) as under_way:
        for strike in strikes:
            under_way.strike(strike, chance)


@pytest.mark.faults(all=12)
def test_killed_aggregation_workers(of_groups: Any, times: int, chance: Random) -> None:
    with of_groups("kill -9 of an aggregation worker", "kafka", UNITS_FOR_A_STRIKE * times) as under_way:
        for _ in range(times):
            under_way.strike(chance.choice((kill_aggregation_worker, lose_copies)), chance)


@pytest.mark.faults(all=4)
def test_an_aggregation_worker_that_stood_still_for_longer_than_its_session(of_groups: Any, times: int, chance: Random) -> None:
    with of_groups("SIGSTOP of an aggregation worker", "kafka", UNITS_FOR_A_STRIKE * times) as under_way:
        for _ in range(times):
            under_way.strike(pause_aggregation_worker, chance)


@pytest.mark.faults(all=8, night=3)
def test_on_files_killed_workers_lose_and_double_no_report(of_groups: Any, times: int, chance: Random) -> None:
    with of_groups("kill -9 of both workers", "file", UNITS_FOR_A_STRIKE * times) as under_way:
        for number in range(times):
            under_way.strike((kill_aggregation_worker, kill_only_worker)[number % 2], chance)
