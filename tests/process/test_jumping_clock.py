"""The clock of a running worker is a year off for a moment: what waits for its deadline is not let out for that."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.set_clock.set_clock import SetClock

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("days", [365, -365])
def test_a_unit_waits_for_what_is_missing_although_the_clock_jumps(
    new_service: Callable[..., OperatedService], tmp_path: Path, days: int
) -> None:
    clock = SetClock(tmp_path)
    settings = (f"{RESEQUENCER}.stash-timeout=5m", f"{NOTIFICATION}.clock.trusted-after=3s")
    service = new_service(*settings, environment=clock.environment).start_and_wait()
    service.tell("before", 2)
    clock.wait_until_settled(service.run_directory, "worker-0")
    for each in (days, 0):
        clock.set(each)
        for number in range(4):  # A deadline is looked at in more than one cycle.
            service.tell(f"{number}-at-{each}", 2, 1)
            service.wait_for(f"{number}-at-{each}", 1, 2)
    service.tell("before", 1)
    service.wait_for("before", 1, 2)
    assert [each["key"] for each in service.notifications() if "incomplete" in each["headers"]] == []
