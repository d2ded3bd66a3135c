"""Orders in a whole service on files: what a cycle does with them, and a kill at each of its steps."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness.crashes.points import Crash, Fate, Steps, StruckFiles, StruckStorage, StruckTransport
from harness.service_under_test import DEADLINE_MS, P0, Service
from msgspec.structs import replace

from guardian.ports import TransportUnavailable
from resequencer.batch import UnitKey
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult
from resequencer.storage_port import WaitKind

HOUR = 3_600_000


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path, has_orders=True).start()


def give(service: Service, kind: OrderKind, unit: str | None = "u", **what: Any) -> Order:
    """Append an order; a release or a skip says what the unit waits for now."""
    seen = {}
    for key, waits in service.report_units().oldest:
        if key.unit == unit:
            seen = {"waits_for": waits.waits_for, "since": waits.since}
    number = len(service.book.orders([P0], 0))
    given = {"by": "anna", "because": "a test", "at": service.clock.now(), "unit": unit, **seen, **what}
    order = Order(id=f"order-{number}", kind=kind, **given)
    service.book.append(P0, order)
    return order


def outcomes(service: Service) -> list[OrderOutcome]:
    return [each for _, each in service.book.outcomes([P0], 0)]


def results(service: Service) -> list[str]:
    return [each.result.value for each in outcomes(service)]


def test_an_order_is_executed_in_the_next_cycle_and_its_outcome_is_published(service: Service) -> None:
    service.tell("u", 2, 3)
    service.run()
    order = give(service, OrderKind.RELEASE)
    service.run()
    assert service.sequences("u") == [2, 3]
    assert [(each.order, each.result) for each in outcomes(service)] == [(order, OrderResult.DONE)]
    assert service.cycle.metrics.orders == {"release done": 1}
    service.restart()
    service.run()
    assert results(service) == ["done"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_second_approval_of_one_proposal_is_refused_also_after_a_takeover(service: Service, is_restarted: bool) -> None:
    service.tell("u", 2)
    service.run()
    order = give(service, OrderKind.HOLD, for_ms=HOUR, approved_by="ben")
    service.run()
    if is_restarted:
        service.restart()
    service.book.append(P0, replace(order, approved_by="cleo"))
    service.run()
    assert results(service) == ["refused-decided"], "the first one holds, and has its outcome at its end"
    assert "approved by ben" in outcomes(service)[0].text


@pytest.fixture
def behind(tmp_path: Path) -> Service:
    """A service that reads one record in a cycle; a unit waits, and others have unread records."""
    service = Service(tmp_path, has_orders=True, batch_size=1).start()
    service.tell("u", 2)
    service.tell("v", 2)
    service.run()
    service.tell("other", *range(1, 7))
    return service


def test_a_release_in_front_of_unread_records_is_executed_when_they_are_read(behind: Service) -> None:
    order = give(behind, OrderKind.RELEASE)
    behind.cycle.run_once()
    give(behind, OrderKind.SKIP)
    behind.cycle.run_once()
    assert dict(behind.report_units().oldest)[UnitKey(P0, "u")].kind is WaitKind.ORDERED
    give(behind, OrderKind.HOLD, unit="v", for_ms=HOUR)
    behind.cycle.run_once()
    assert (results(behind), behind.sequences("u")) == (["refused-waiting"], [])
    give(behind, OrderKind.RESUME, unit="v")
    behind.cycle.run_once()
    assert results(behind)[1:] == ["held-until-resumed", "done"], "orders for other units pass"
    behind.run()
    assert (results(behind)[3:], behind.sequences("u")) == (["done"], [2])
    assert outcomes(behind)[-1].order == order


@pytest.mark.parametrize("kind", [OrderKind.RELEASE, OrderKind.SKIP])
def test_a_missing_envelope_among_the_unread_records_ends_the_order(behind: Service, kind: OrderKind) -> None:
    behind.tell("u", 1)
    give(behind, kind)
    behind.run()
    assert (results(behind), behind.sequences("u")) == (["refused-changed"], [1, 2])


def test_records_that_come_while_the_order_waits_are_not_waited_for(behind: Service) -> None:
    give(behind, OrderKind.RELEASE)
    for number in range(7, 17):
        behind.cycle.run_once()
        behind.tell("other", number)
    assert results(behind) == ["done"]


def test_a_waiting_order_survives_a_takeover_and_is_executed_by_the_next_owner(behind: Service) -> None:
    give(behind, OrderKind.RELEASE)
    behind.cycle.run_once()
    behind.restart()
    behind.cycle.run_once()
    assert (results(behind), behind.sequences("u")) == ([], [])
    behind.run()
    assert (results(behind), behind.sequences("u")) == (["done"], [2])


def test_an_order_that_has_waited_its_time_is_refused_also_after_a_takeover(behind: Service) -> None:
    give(behind, OrderKind.RELEASE)
    behind.cycle.run_once()
    behind.restart()
    behind.clock.advance(600_000)
    behind.cycle.run_once()
    assert results(behind) == ["refused-backlog"]
    behind.run()
    assert behind.sequences("u") == [2], "then its deadline releases it"


def test_a_pause_of_the_partition_lets_an_order_wait_on_and_refuses_a_new_one(behind: Service) -> None:
    give(behind, OrderKind.RELEASE)
    give(behind, OrderKind.PAUSE, unit=None)
    give(behind, OrderKind.RELEASE, unit="v")
    behind.run()
    assert results(behind) == ["refused-backlog", "done"]
    give(behind, OrderKind.RESUME_PARTITION, unit=None)
    behind.run()
    assert (results(behind)[2:], behind.sequences("u")) == (["done", "done"], [2])


def test_an_order_that_waits_in_a_paused_partition_is_refused_in_time(behind: Service) -> None:
    give(behind, OrderKind.RELEASE)
    give(behind, OrderKind.PAUSE, unit=None)
    behind.run()
    behind.run_after(600_000)
    assert results(behind) == ["done", "refused-backlog"]


def test_a_waiting_order_of_a_lost_storage_is_lost_with_it(behind: Service) -> None:
    give(behind, OrderKind.RELEASE)
    behind.cycle.run_once()
    behind.stop()
    behind.forget_database()
    behind.start()
    behind.run()
    assert results(behind) == ["lost-by-heal"]


@pytest.mark.slow
def test_a_kill_at_each_step_of_a_waiting_order_executes_it_once(tmp_path: Path) -> None:
    def played(name: str, fate: Callable[[int], Fate]) -> tuple[Service, Steps]:
        steps = Steps(fate, Random(1))
        service = Service(tmp_path / name, has_orders=True, batch_size=2)
        service.files = StruckFiles(steps)
        service.around_transport = lambda transport: StruckTransport(transport, steps)
        service.around_storage = lambda storage: StruckStorage(storage, steps)
        armed, steps.armed = steps.armed, False
        service.tell("u", 2)
        _live(service)
        service.tell("other", *range(1, 6))
        give(service, OrderKind.RELEASE)
        steps.armed = armed
        _live(service)
        steps.armed = False
        service.stop()
        return service, steps

    whole, steps = played("whole", lambda _: Fate.GOES_WELL)
    assert results(whole) == ["done"]
    contents = sorted(each.content for each in whole.notifications)
    for step in range(1, steps.count + 1):
        struck, _ = played(str(step), lambda number, step=step: Fate.CRASH if number == step else Fate.GOES_WELL)
        assert (results(struck), struck.sequences("u")) == (["done"], [2]), step
        assert sorted(each.content for each in struck.notifications) == contents, step


def test_a_hold_survives_restarts_and_ends_in_time(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    give(service, OrderKind.HOLD, for_ms=HOUR)
    service.run()
    service.tell("u", 2, 3)
    service.run()
    service.restart()
    service.run_after(HOUR - 1)
    assert service.sequences("u") == [1]
    assert [waits.kind for _, waits in service.report_units().oldest] == [WaitKind.HELD]
    service.run_after(1)
    assert service.sequences("u") == [1, 2, 3]
    assert results(service) == ["held-to-its-end"]


def test_a_held_unit_is_not_forgotten(tmp_path: Path) -> None:
    service = Service(tmp_path, has_orders=True, retention_ms=60_000).start()
    service.tell("u", 1)
    service.run()
    give(service, OrderKind.HOLD, for_ms=HOUR)
    service.run()
    service.live(20 * 60_000)
    assert service.kept_units() == 1


def test_a_paused_partition_reads_nothing_and_its_deadlines_rest(service: Service) -> None:
    service.tell("u", 2)
    service.run_after(1_000)
    give(service, OrderKind.PAUSE, unit=None)
    service.run_after(1_000)
    service.tell("u", 1)
    service.run_after(HOUR)
    assert service.notifications == []
    service.restart()
    service.run_after(HOUR)
    assert service.notifications == []
    assert service.cycle.partitions.owned[P0].orders.is_paused
    give(service, OrderKind.RESUME_PARTITION, unit=None)
    service.run()
    assert service.sequences("u") == [1, 2]
    assert results(service) == ["done", "done"]


def test_a_deadline_is_later_by_the_pause(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.clock.advance(1_000)
    give(service, OrderKind.PAUSE, unit=None)
    service.run()
    service.run_after(HOUR)
    give(service, OrderKind.RESUME_PARTITION, unit=None)
    service.run()
    service.restart()
    service.run_after(DEADLINE_MS - 1_001)
    assert service.notifications == []
    service.run_after(1)
    assert service.sequences("u") == [2]


def test_retention_rests_in_a_pause(tmp_path: Path) -> None:
    service = Service(tmp_path, has_orders=True, retention_ms=60_000).start()
    service.tell("u", 1)
    service.run()
    give(service, OrderKind.PAUSE, unit=None)
    service.run()
    service.live(10 * 60_000)
    assert service.kept_units() == 1
    give(service, OrderKind.RESUME_PARTITION, unit=None)
    service.live(2 * 60_000)
    assert service.kept_units() == 0


def test_orders_that_cannot_be_read_hold_up_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise TransportUnavailable("the disk is away")

    service.tell("u", 2)
    service.run()
    give(service, OrderKind.RELEASE)
    with monkeypatch.context() as patch:
        patch.setattr(service.book, "poll", fail)
        service.tell("v", 1)
        service.run()
        assert service.sequences("v") == [1]
        assert service.cycle.orders_problem == "orders are not read at the moment: the disk is away"
    service.run()
    assert service.cycle.orders_problem is None
    assert results(service) == ["done"]


def test_an_order_on_which_the_service_fails_is_refused_and_the_worker_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    service.tell("u", 2)
    service.run()
    give(service, OrderKind.RELEASE)
    monkeypatch.setattr("resequencer.turn.orders._refuse_changed", fail)
    service.tell("v", 1)
    service.run()
    assert results(service) == ["refused-impossible"]
    assert service.sequences("v") == [1]


def test_after_a_lost_storage_orders_without_an_outcome_are_told_of_and_older_ones_are_not_repeated(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    give(service, OrderKind.RETRY)
    service.run()
    give(service, OrderKind.HOLD, for_ms=HOUR)
    service.run()
    service.stop()
    service.forget_database()
    service.start()
    service.run()
    assert results(service) == ["refused-impossible", "lost-by-heal"]
    give(service, OrderKind.HOLD, for_ms=HOUR)
    service.run()
    give(service, OrderKind.RESUME)
    service.run()
    assert results(service)[2:] == ["held-until-resumed", "done"]


def test_with_storage_none_orders_begin_at_the_end_and_only_partitions_take_them(tmp_path: Path) -> None:
    service = Service(tmp_path, has_orders=True, storage="none").start()
    service.tell("u", 2)
    service.run()
    give(service, OrderKind.RELEASE)
    give(service, OrderKind.PAUSE, unit=None)
    service.run()
    assert results(service) == ["refused-impossible", "done"]
    service.tell("v", 1)
    service.run()
    assert service.sequences("v") == []
    service.restart()
    service.run()
    assert service.sequences("v") == [1]
    assert results(service) == ["refused-impossible", "done"]


def _played(directory: Path, fate: Callable[[int], Fate]) -> tuple[Service, Steps]:
    """Let a worker with these faults execute orders of each kind, and start it again after each kill."""
    steps = Steps(fate, Random(1))
    service = Service(directory, has_orders=True, rotate_bytes=1_000)
    service.files = StruckFiles(steps)
    service.around_transport = lambda transport: StruckTransport(transport, steps)
    service.around_storage = lambda storage: StruckStorage(storage, steps)
    given = (
        (OrderKind.EXTEND, {"until": service.clock.now() + HOUR}),
        (OrderKind.SKIP, {}),
        (OrderKind.HOLD, {"for_ms": HOUR}),
        (OrderKind.PAUSE, {"unit": None}),
        (OrderKind.RESUME_PARTITION, {"unit": None}),
        (OrderKind.RESUME, {}),
        (OrderKind.DEAD_LETTER, {}),
        (OrderKind.RELEASE, {}),
    )
    service.tell("u", 2, 4, 6, 7)
    last = (directory / "in" / "partition-0.jsonl").read_bytes().rstrip(b"\n").rfind(b"\n") + 1
    _live(service)
    for kind, what in given:
        armed, steps.armed = steps.armed, False
        give(service, kind, **({"position": last} if kind is OrderKind.DEAD_LETTER else what))
        steps.armed = armed
        _live(service)
    steps.armed = False
    service.stop()
    return service, steps


def _live(service: Service) -> None:
    while True:
        with suppress(Crash):
            if service._cycle is None:
                service.start()
            service.run()
            return
        service.kill()


@pytest.mark.slow
def test_a_kill_at_each_step_executes_each_order_once_with_one_outcome(tmp_path: Path) -> None:
    whole, steps = _played(tmp_path / "whole", lambda _: Fate.GOES_WELL)
    expected = [replace(each, at=0) for each in outcomes(whole)]
    assert [each.result.value for each in expected] == ["done"] * 2 + ["done", "done", "held-until-resumed"] + ["done"] * 3
    contents, dead = [each.content for each in whole.notifications], [(each.position, each.reason) for each in whole.dead]
    assert (len(contents), len(dead)) == (3, 1)
    for step in range(1, steps.count + 1):
        struck, _ = _played(tmp_path / str(step), lambda number, step=step: Fate.CRASH if number == step else Fate.GOES_WELL)
        assert [replace(each, at=0) for each in outcomes(struck)] == expected, step
        assert [each.content for each in struck.notifications] == contents, step
        assert [(each.position, each.reason) for each in struck.dead] == dead, step
