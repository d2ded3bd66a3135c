"""A region that is reset to its initial state, as real processes: what is asked, answered, sent again, continued after a kill."""

import json
from collections.abc import Callable

import pytest
from harness.processes.operated_service import RESEQUENCER, OperatedService

from notification_service.status.sink_attributes import RegionOrder, RegionOrderFile

pytestmark = pytest.mark.slow


@pytest.fixture
def service(new_service: Callable[..., OperatedService]) -> OperatedService:
    return new_service(f"{RESEQUENCER}.stash-timeout=10m")


def marked(service: OperatedService) -> list[bool]:
    return ["possible-duplicate" in each["headers"] for each in service.notifications()]


def test_what_was_sent_is_sent_again_with_a_mark_and_an_order_that_was_begun_is_continued_by_the_next_start(
    service: OperatedService,
) -> None:
    service.tell("uow-1", 1, 2)
    service.start_and_wait()
    service.wait_for("uow-1", 1, 2)
    plan = service.verb("region", "reset", "--to-initial", "--dry-run")
    assert (plan.returncode, "a reset to the initial state would read" in plan.stdout) == (0, True), plan
    refused = service.verb("region", "reset", "--to-initial")
    assert (refused.returncode, "give a reason" in refused.stderr) == (1, True)
    done = service.verb("region", "reset", "--to-initial", "--because", "a new handler", "--json")
    assert (done.returncode, json.loads(done.stdout)["isDone"]) == (0, True), done
    service.wait_for("uow-1", 1, 2, 1, 2)
    assert marked(service) == [False, False, True, True]
    assert "(a new handler) reset the region to its initial state" in service.log
    assert service.stop() == 0

    file = RegionOrderFile(service.run_directory, 0)
    file.give(RegionOrder(1, "x", "anna", to_initial=True))
    assert file.take(1) is not None
    service.tell("uow-1", 3)
    service.start_and_wait()
    service.wait_for("uow-1", 1, 2, 1, 2, 3, 1, 2, 3)
    assert marked(service)[4:] == [False, True, True, True]
    assert file.find_begun() is None
