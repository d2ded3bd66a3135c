"""Retention counts only the time in which a partition was caught up, so a long absence forgets no unit that is needed."""

from collections.abc import Callable
from typing import Any

import pytest
from harness.service_under_test import Service

from guardian.ports import TransportUnavailable
from guardian.unit_registry import UnitRegistrySettings

HOUR_MS = 3_600_000
RETENTION_MS = 4 * HOUR_MS
UNITS = [f"u{number}" for number in range(20)]
PARTS = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION")


def tell_first(service: Service) -> None:
    for unit in UNITS:
        service.tell(unit, 1, mds=PARTS)
    service.run()


def tell_second(service: Service) -> None:
    for unit in UNITS:
        service.tell(unit, 2)
    for unit in UNITS[:5]:
        service.tell(unit, 1, mds=PARTS)


def read_one_by_one(service: Service) -> None:
    """Read as the worker does: it expires idle units after each cycle, from its first cycle on."""
    for _ in range(2 * len(UNITS) + 10):
        service.cycle.run_once()
        service.cycle.expire()
    service.run()


def check_all_is_whole(service: Service) -> None:
    assert [(each.unit, each.sequence) for each in service.notifications] == [
        (unit, number) for number in (1, 2) for unit in UNITS
    ]
    assert {(each.data, each.incomplete, each.is_possible_duplicate) for each in service.notifications} == {(PARTS, None, False)}


@pytest.mark.parametrize("hours", [3.9, 4.1, 60])
def test_a_stop_forgets_nothing_that_is_still_unread(new_service: Callable[..., Service], hours: float) -> None:
    service = new_service(batch_size=1)
    tell_first(service)
    service.stop()
    tell_second(service)
    service.clock.advance(round(hours * HOUR_MS))
    service.start()
    read_one_by_one(service)
    check_all_is_whole(service)


@pytest.mark.parametrize("storage", ["embedded", "none"])
@pytest.mark.parametrize("at", range(6))
def test_a_clock_that_jumps_ahead_forgets_nothing(new_service: Callable[..., Service], storage: str, at: int) -> None:
    service = new_service(storage=storage, acknowledge_handled=storage == "none", batch_size=1)
    tell_first(service)
    tell_second(service)
    for _ in range(at):
        service.cycle.run_once()
    service.clock.advance(30 * RETENTION_MS)
    service.cycle.run_once()
    service.clock.advance(30 * RETENTION_MS)
    read_one_by_one(service)
    check_all_is_whole(service)


@pytest.mark.parametrize("storage", ["embedded", "none"])
def test_a_clock_that_jumps_ahead_while_all_is_read_moves_the_caught_up_clock_by_one_step(
    new_service: Callable[..., Service], storage: str
) -> None:
    service = new_service(storage=storage, acknowledge_handled=storage == "none")
    tell_first(service)
    for _ in range(5):
        service.run_after(30 * RETENTION_MS)
        assert service.cycle.expire() == 0
    tell_second(service)
    service.run()
    check_all_is_whole(service)


@pytest.mark.parametrize("storage", ["embedded", "none"])
def test_what_is_in_memory_is_kept_while_a_cycle_is_held_up(new_service: Callable[..., Service], storage: str) -> None:
    """The output is away for longer than the retention. The units that the next cycle needs must still be in memory."""
    service = new_service(storage=storage, acknowledge_handled=storage == "none", batch_size=1)
    publishing = []

    class Away:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def publish(self, outputs: Any) -> None:
            publishing.append(outputs)
            if 3 < len(publishing) < 8:
                service.clock.advance(RETENTION_MS)
                raise TransportUnavailable("the output is away")
            self._inner.publish(outputs)

    service.stop()
    service.around_transport = Away
    service.start()
    tell_first(service)
    tell_second(service)
    read_one_by_one(service)
    check_all_is_whole(service)


def test_an_idle_unit_is_forgotten_after_a_retention_of_being_caught_up(
    new_service: Callable[..., Service],
) -> None:
    service = new_service(retention_ms=60_000)
    service.tell("u", 1)
    service.run()
    assert service.live(55_000) == 0
    assert service.live(10_000) == 1


@pytest.mark.parametrize("storage", ["embedded", "none"])
def test_a_unit_in_memory_is_not_forgotten_behind_its_actor(new_service: Callable[..., Service], storage: str) -> None:
    registry = UnitRegistrySettings(idle_timeout_ms=10 * HOUR_MS, can_reload=storage != "none")
    service = new_service(storage=storage, acknowledge_handled=storage == "none", retention_ms=60_000, registry=registry)
    service.tell("u", 1, mds=PARTS)
    service.run()
    assert service.live(100_000) == 0
    service.tell("u", 2)
    service.run()
    service.clock.advance(11 * HOUR_MS)
    service.run()
    service.tell("u", 3)
    service.run()
    assert [each.data for each in service.notifications] == [PARTS] * 3


def test_the_caught_up_clock_goes_on_after_a_restart_where_it_was_committed_last(new_service: Callable[..., Service]) -> None:
    service = new_service(retention_ms=60_000)
    service.tell("u", 1)
    service.run()
    assert service.live(40_000) == 0
    service.tell("other", 1)
    service.run()
    service.stop()
    service.clock.advance(100 * HOUR_MS)
    service.start()
    assert service.live(15_000) == 0
    assert service.live(10_000) == 1


def test_time_in_which_records_lie_unread_does_not_count(new_service: Callable[..., Service]) -> None:
    service = new_service(retention_ms=60_000, batch_size=1)
    service.tell("u", 1)
    service.run()
    for number in range(100):
        service.tell(f"other-{number}", 1)
    for _ in range(90):
        service.clock.advance(10_000)
        service.cycle.run_once()
        assert service.cycle.expire() == 0
