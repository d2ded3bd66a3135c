"""A clock that was a day ahead and is right again: nothing waits a day longer."""

from collections.abc import Callable

import pytest
from harness.service_under_test import Service

DAY_MS = 86_400_000
DEADLINE_MS = 21_000


@pytest.fixture
def service(new_service: Callable[..., Service]) -> Service:
    service = new_service()
    service.clock.advance(DAY_MS)
    return service


def set_right(service: Service, *, is_new: bool) -> None:
    service.run()
    if is_new:
        service.stop()
    service.clock.advance(-DAY_MS)
    if is_new:
        service.start()
    service.run()


@pytest.mark.parametrize("is_new", [False, True])
def test_what_was_stashed_meanwhile_is_released_after_one_deadline(service: Service, *, is_new: bool) -> None:
    service.tell("u", 2, 3)
    set_right(service, is_new=is_new)
    service.run_after(10_000)
    service.tell("u", 5)
    service.run_after(DEADLINE_MS - 10_001)
    assert service.notifications == []
    service.run_after(1)
    assert service.sequences("u") == [2, 3, 5]
    assert [each.incomplete for each in service.notifications] == ["sequence:1", "sequence:1", "sequence:4"]


@pytest.mark.parametrize("is_new", [False, True])
def test_what_failed_for_a_while_meanwhile_is_tried_again(service: Service, *, is_new: bool) -> None:
    service.handler.away_until["u#A#1"] = service.clock.now()
    service.handler.away_until["u#A#1"] += 1_000
    service.tell("u", 1, 2)
    service.run()
    assert service.notifications == []
    service.handler.away_until.clear()
    set_right(service, is_new=is_new)
    service.run_after(30_000)
    assert service.sequences("u") == [1, 2]


def test_a_unit_that_was_spoken_to_meanwhile_leaves_memory(service: Service) -> None:
    service.tell("u", 1)
    set_right(service, is_new=False)
    assert service.report_units().active == 1
    service.run_after(30_000)
    assert service.report_units().active == 0
