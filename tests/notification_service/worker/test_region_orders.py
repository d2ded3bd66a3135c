"""What a worker does with an order to reset its region to the initial state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guardian.resets import ResetAnswer
from notification_service.configuration.configuration import Configuration
from notification_service.status.report import Identity
from notification_service.status.sink_attributes import Change, RegionOrder, RegionOrderFile, SinkAttributesFile
from notification_service.worker.worker import RegionControl

N = "payment-status-notification"
TO_INITIAL = RegionOrder(7, "a", "anna", to_initial=True, because="a new handler")


class Cycles:
    """Notes who reset it, and how."""

    def __init__(self) -> None:
        self.obstacle: str | None = None
        self.asked: list[tuple[str, bool]] = []
        self.region: Any = SimpleNamespace()

    def find_obstacle(self) -> str | None:
        return self.obstacle

    def reset_to_initial(self, who: str, *, is_dry_run: bool) -> ResetAnswer:
        self.asked.append((who, is_dry_run))
        return ResetAnswer(is_done=True, text="done")

    def reset_by(self, who: str, *, is_forced: bool) -> ResetAnswer:
        self.asked.append((who, is_forced))
        return ResetAnswer(is_done=True, text="done")


@pytest.fixture
def configured(loaded: Callable[..., Configuration], tmp_path: Path) -> Callable[..., Configuration]:
    """A service with a sink mqtt whose run directory is `tmp_path`."""
    mqtt = 'transport = mqtt, mqtt.url = "mqtt://first:1883", resequencer.storage-type = embedded'
    return lambda more="": loaded(f'{N} {{ run-directory = "{tmp_path}", {mqtt} }}\n{more}')


def control(configuration: Configuration, cycles: Cycles) -> RegionControl:
    return RegionControl(configuration, Identity(7, "conf", 0), cycles)  # type: ignore[arg-type]


def test_in_the_initial_state_the_sink_has_the_configured_attributes(
    configured: Callable[..., Configuration], tmp_path: Path
) -> None:
    cycles, attributes, file = Cycles(), SinkAttributesFile(tmp_path), RegionOrderFile(tmp_path, 0)
    attributes.write({"qos": Change(1, 2, "ben", "2026-03-28T23:20:00Z")})
    made = control(configured(), cycles)
    file.give(RegionOrder(7, "p", "anna", to_initial=True, is_dry_run=True))
    assert made.look()
    assert attributes.find() is not None, "a dry run changes nothing"
    file.give(TO_INITIAL)
    assert made.look()
    assert cycles.asked == [("anna", True), ("anna (a new handler)", False)]
    assert (attributes.find(), file.find_begun(), made.look()) == (None, None, False)


def test_an_order_that_another_worker_began_is_executed_once_everything_is_taken_over(
    configured: Callable[..., Configuration], tmp_path: Path
) -> None:
    cycles, file = Cycles(), RegionOrderFile(tmp_path, 0)
    file.give(TO_INITIAL)
    file.take(7)
    made, cycles.obstacle = control(configured(), cycles), "EVENTS-0 is not taken over yet"
    assert (made.look(), cycles.asked) == (False, [])
    cycles.obstacle = None
    assert (made.look(), made.look(), len(cycles.asked)) == (True, False, 1)
    assert file.find_begun() is None


def test_a_region_that_has_failed_is_reset_although_another_worker_began_an_order(
    configured: Callable[..., Configuration], tmp_path: Path
) -> None:
    cycles, file = Cycles(), RegionOrderFile(tmp_path, 0)
    file.give(TO_INITIAL)
    file.take(7)
    made, cycles.obstacle = control(configured(), cycles), "the region is failed"
    file.give(RegionOrder(7, "b", "ben"))
    assert (made.look(), cycles.asked) == (True, [("ben", False)])
    assert file.find_begun() == TO_INITIAL, "it is not lost if this worker dies"
    file.give(RegionOrder(7, "p", "ben", to_initial=True, is_dry_run=True))
    assert (made.look(), file.find_begun()) == (True, TO_INITIAL)
    cycles.obstacle = None
    assert (made.look(), cycles.asked[-1]) == (True, ("anna (a new handler)", False))
    assert file.find_begun() is None


@pytest.mark.parametrize(("approved_by", "is_done"), [(None, False), ("Anna", False), ("ben", True)])
def test_without_a_second_person_it_is_refused_where_one_is_needed(
    configured: Callable[..., Configuration], tmp_path: Path, approved_by: str | None, *, is_done: bool
) -> None:
    cycles, file = Cycles(), RegionOrderFile(tmp_path, 0)
    made = control(configured(f"{N}.http {{ auth = basic, approval = [reset-to-initial] }}"), cycles)
    file.give(RegionOrder(7, "a", "anna", to_initial=True, because="x", approved_by=approved_by))
    assert made.look()
    assert cycles.asked == ([("anna, approved by ben (x)", False)] if is_done else [])
    assert file.find_begun() is None
