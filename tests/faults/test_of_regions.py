"""Regions of each pair of source and sink, struck under load: what the table of the README promises is held."""

from itertools import cycle, islice
from typing import Any

import pytest
from harness.processes.operated_service import INGRESS

from tests.faults.region_campaign import MIX

pytestmark = [pytest.mark.slow, pytest.mark.faults(all=14)]
"""The short form is tests/process/test_regions.py."""

EXACTLY_ONCE = [
    ("kafka", ("file",)),
    ("kafka", ("jms",)),
    ("file", ("kafka",)),
    ("file", ("jms",)),
    ("jms", ("kafka",)),
    ("jms", ("file",)),
    ("jms", ("jms",)),
    ("kafka", ("jms", "kafka")),
    ("jms", ("kafka", "file")),
]
AT_LEAST_ONCE = [(source, (sink,)) for sink in ("mqtt", "xms") for source in ("kafka", "file", "jms")]


@pytest.mark.parametrize(("source", "sinks"), [*EXACTLY_ONCE, *AT_LEAST_ONCE, ("jms", ("kafka", "mqtt", "xms"))])
def test_whatever_happens_each_sink_gets_what_it_was_promised(
    of_regions: Any, times: int, source: str, sinks: tuple[str, ...]
) -> None:
    with of_regions(source, sinks) as under_way:
        for strike in islice(cycle(MIX), times):
            under_way.strike(strike)


def test_whatever_happens_fixed_partitions_are_exactly_once(of_regions: Any, times: int) -> None:
    with of_regions("kafka", ("kafka",), f"{INGRESS}.kafka.partitions=[0, 1]") as under_way:
        for strike in islice(cycle(MIX), times):
            under_way.strike(strike)
