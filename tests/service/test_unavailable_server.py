"""A server that the handler calls is away for long: units that need it wait, through restarts, too; all others continue."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import Service

from guardian.unit_registry import UnitRegistrySettings
from resequencer.settings import ResequencerSettings

HOUR_MS = 3_600_000
API = "server"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """A maker of services whose server is away from the beginning, for the envelopes that need it."""
    made: list[Service] = []

    def make(*needs: str, hours: int = 1, **plan: Any) -> Service:
        one = Service(tmp_path / str(len(made)), **plan)
        one.handler.needs_server = frozenset(needs)
        one.handler.server_away = range(one.clock.now(), one.clock.now() + hours * HOUR_MS)
        made.append(one.start())
        return one

    yield make
    for each in made:
        each.kill()


def let_pass(service: Service, milliseconds: int) -> None:
    """Let time pass in steps of ten seconds."""
    for _ in range(0, milliseconds, 10_000):
        service.run_after(10_000)


@pytest.mark.slow
def test_an_hour_without_it_costs_no_dead_letter_and_no_mark(service: Callable[..., Service]) -> None:
    one = service("uow-1#A#1", retention_ms=60_000)
    one.tell("uow-1", 1, 3, 2)
    one.tell("uow-2", 1, 2)
    one.run()
    assert one.sequences("uow-2") == [1, 2]
    assert one.report_units().unavailable == {API: 1}
    let_pass(one, HOUR_MS // 2)
    one.restart()
    one.run()
    assert one.report_units().unavailable == {API: 1}
    let_pass(one, HOUR_MS // 2 + 60_000)
    assert one.sequences("uow-1") == [1, 2, 3]
    assert not any(each.incomplete or each.is_late for each in one.notifications)
    assert one.dead == []
    assert one.report_units().unavailable == {}


@pytest.mark.slow
def test_beyond_the_workers_bound_what_waits_for_it_leaves_memory(service: Callable[..., Service]) -> None:
    units = [f"uow-{number}" for number in range(20)]
    one = service(*(f"{unit}#A#1" for unit in units), registry=UnitRegistrySettings(stash_bytes=20_000))
    for unit in units:
        one.tell(unit, 1, 2, 3)
        one.run()
    let_pass(one, 60_000)
    assert one.report_units().stashed_bytes <= 20_000
    assert one.report_units().stashed == 60
    let_pass(one, HOUR_MS)
    assert all(one.sequences(unit) == [1, 2, 3] for unit in units)
    assert one.dead == []


@pytest.mark.slow
def test_a_unit_beyond_its_bound_waits_outside_of_memory_and_is_not_released(service: Callable[..., Service]) -> None:
    one = service("uow-1#A#1", resequencer=ResequencerSettings(stash_limit=5), registry=UnitRegistrySettings(unit_stash=5))
    for number in range(1, 13):
        one.tell("uow-1", number)
        one.run()
    units_report = one.report_units()
    assert (units_report.active, units_report.waiting, units_report.stashed, units_report.stashed_bytes) == (0, 1, 12, 0)
    let_pass(one, HOUR_MS + 60_000)
    assert one.sequences("uow-1") == [*range(1, 13)]
    assert not any(each.incomplete for each in one.notifications)


def test_where_nothing_can_leave_memory_the_oldest_is_set_aside_beyond_the_workers_bound(service: Callable[..., Service]) -> None:
    units = [f"uow-{number}" for number in range(20)]
    one = service(*(f"{unit}#A#1" for unit in units), storage="none", registry=UnitRegistrySettings(stash_bytes=20_000))
    for unit in units:
        one.tell(unit, 1)
        one.run()
        assert one.report_units().stashed_bytes <= 20_000 + 3_000
    one.tell("uow-x", 1)
    one.run()
    assert one.sequences("uow-x") == [1], "the intake goes on"
    assert 5 < len(one.dead) < 20
    assert {each.error for each in one.dead} == {
        "server is unavailable, and the worker's stash is full (stash-limit.bytes-per-worker)"
    }
    let_pass(one, HOUR_MS + 60_000)
    assert len(one.dead) + len([each for each in one.notifications if each.unit in units]) == 20
