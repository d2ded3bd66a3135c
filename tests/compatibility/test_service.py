"""A real service is started on the directory of a fixture, where units waited, and goes on where that was stopped."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes.operated_service import OperatedService

pytestmark = pytest.mark.slow


@pytest.fixture
def service(kept: Path, tmp_path: Path) -> Iterator[OperatedService]:
    made = OperatedService(tmp_path)
    shutil.copytree(kept / "service", made.run_directory)
    yield made
    made.clear_away()


def test_what_waited_leaves_when_what_was_missing_comes_and_nothing_is_told_twice(service: OperatedService) -> None:
    """Their deadlines have passed long ago: they are owned until all that lies there is read."""
    output = service.out_directory / "notifications.jsonl"
    before = output.read_bytes()
    assert (service.sequences("done"), service.sequences("waits"), service.sequences("waits-with-some")) == ([1, 2], [], [1])
    service.tell("done", 1, 3)
    service.tell("waits", 2, 1)
    service.tell("waits-with-some", 3, 2)
    service.start_and_wait()
    service.wait_until_idle()
    assert service.stop() == 0
    assert output.read_bytes().startswith(before)
    assert service.sequences("done") == [1, 2, 3]
    assert service.sequences("waits") == [1, 2, 3, 4]
    assert service.sequences("waits-with-some") == [1, 2, 3]
    assert not any({"incomplete", "late", "possible-duplicate"} & each["headers"].keys() for each in service.notifications())
    (letter,) = service.dead_letters()
    numbers = [int(each["number"].rpartition("#")[2]) for each in (*service.notifications(), letter)]
    assert sorted(numbers) == [*range(1, 12)]


def test_without_what_was_missing_they_are_released_marked(service: OperatedService) -> None:
    service.start_and_wait()
    service.wait_until_idle()
    assert service.stop() == 0
    assert (service.sequences("waits"), service.sequences("waits-with-some")) == ([3, 4], [1, 3])
    marked = {each["headers"]["incomplete"] for each in service.notifications() if "incomplete" in each["headers"]}
    assert marked == {"sequence:1", "sequence:2"}
