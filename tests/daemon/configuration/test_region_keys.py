"""The keys of a region, and what must go together with them."""

from typing import Any

import pytest

from daemon.configuration.constraints import broken_constraints
from guardian.region import RegionSettings, Trigger

TRANSPORT = "ipf.processing-data.ingress.transport"
REGION = "payment-status-notification.region"


def test_the_defaults_are_those_of_the_state_machine(loaded: Any) -> None:
    assert loaded("").region == RegionSettings()


@pytest.mark.parametrize(
    ("source", "trigger", "count", "is_refused"),
    [
        ("jms", Trigger.OPERATOR_DRIVEN, None, True),
        ("jms", Trigger.OPERATOR_DRIVEN, 500, False),
        ("jms", Trigger.PERIODIC, None, False),
        ("kafka", Trigger.OPERATOR_DRIVEN, None, False),
    ],
)
def test_an_operator_driven_jms_source_needs_a_count(
    source: str, trigger: Trigger, count: int | None, *, is_refused: bool
) -> None:
    values = {TRANSPORT: source, f"{REGION}.trigger": trigger.value, f"{REGION}.trigger-count": count}
    broken = [each.path for each in broken_constraints(values)]
    assert broken == ([f"{REGION}.trigger-count"] if is_refused else [])


def test_the_count_of_the_region_is_that_of_its_polls(loaded: Any) -> None:
    files = "ipf.processing-data.ingress.transport = file\npayment-status-notification.transport = file"
    assert loaded(f"{files}\n{REGION}.trigger-count = 7").region.trigger_count == 7
