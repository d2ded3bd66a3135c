"""The orders of a shop leave byte for byte as they came, once and in order, though workers and the broker are killed."""

from random import Random
from typing import Any

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER

from tests.faults.conftest import Opens
from tests.faults.strikes import kill_broker, kill_worker

pytestmark = pytest.mark.slow

SHOP = (f"{INGRESS}.events.format=cloudevents", f"{NOTIFICATION}.handler=pass-through")
PATIENT = f"{RESEQUENCER}.stash-timeout=3m"
"""Longer than a strike can delay the feeder, so that no wait ends before its event comes."""
IN_WINDOW = f"{RESEQUENCER}.strategy=WINDOW", f"{RESEQUENCER}.reorder-window=60s"
"""The same, and each event waits so long."""
PARTS = "[order.created, order.paid]"


def each_strategy(**strategies: tuple[tuple[str, ...], str]) -> list[Any]:
    """Return test parameters: overrides and numbering of each strategy."""
    return [
        pytest.param(name, overrides, numbering, marks=pytest.mark.faults(all=4, night=2, short=0), id=name)
        for name, (overrides, numbering) in strategies.items()
    ]


@pytest.mark.parametrize(
    ("strategy", "overrides", "numbering"),
    each_strategy(
        SEQUENCE=((PATIENT,), "shared"),
        STRICT_SEQUENCE=((PATIENT, f"{RESEQUENCER}.strategy=STRICT_SEQUENCE"), "separate"),
        PREVIOUS=((PATIENT, f"{RESEQUENCER}.strategy=PREVIOUS"), "mixed"),
        COMPLETE=((PATIENT, f"{RESEQUENCER}.strategy=COMPLETE", f"{RESEQUENCER}.required-parts={PARTS}"), "mixed"),
        WINDOW_BY_TIME=((*IN_WINDOW, f"{RESEQUENCER}.order-by=time"), "mixed"),
        WINDOW_BY_SEQUENCE=((*IN_WINDOW, f"{RESEQUENCER}.order-by=sequence"), "shared"),
    ),
)
def test_killed_workers_and_brokers_cost_no_event_and_no_byte(
    campaign: Opens, times: int, chance: Random, strategy: str, overrides: tuple[str, ...], numbering: str
) -> None:
    arguments = ("--numbering", numbering)
    with campaign(f"kill -9, shop, {strategy}", "redis", *SHOP, *overrides, arguments=arguments) as under_way:
        for number in range(times):
            under_way.strike(kill_broker if number % 2 else kill_worker, chance)
    assert under_way.verdict["late"] == under_way.verdict["incomplete"] == 0
