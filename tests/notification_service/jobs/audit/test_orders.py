"""Operators' orders: what they explain is not found, and what no order explains is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import P0, Service
from harness.spark.audited_service import AuditedService, Line, lines_of, write_lines
from harness.spark.operator import Operator

from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.row_audit import ORDERED, PAUSED, UNIT, WITHOUT_OUTCOME
from resequencer.order import Order, OrderKind, OrderResult

OF_UNITS = tuple(each for each in OrderKind if not each.is_of_partition)


def audited(directory: Path, *kinds: OrderKind, strategy: str = "SEQUENCE", **plan: Any) -> AuditedService:
    service = AuditedService(directory, strategy, has_orders=True)
    service.live_with(Operator(kinds, directory), **({"losses": 0.1} | plan))
    return service


def results(service: AuditedService) -> Counter[str | None]:
    return Counter(each.status for each in service.audit() if each.kind == ORDERED)


def deviations(service: AuditedService) -> set[str | None]:
    return {deviation for deviation, _ in service.findings()}


@pytest.fixture
def released(tmp_path: Path) -> AuditedService:
    """A service in which operators released some units."""
    return audited(tmp_path, OrderKind.RELEASE)


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001"])
@pytest.mark.parametrize("kinds", [*((each,) for each in OF_UNITS), OF_UNITS], ids=[*OF_UNITS, "all kinds"])
def test_what_orders_did_is_explained(kinds: tuple[OrderKind, ...], strategy: str, tmp_path: Path) -> None:
    assert audited(tmp_path, *kinds, strategy=strategy).findings() == []


@pytest.mark.parametrize("kind", [OrderKind.RELEASE, OrderKind.SKIP, OrderKind.DEAD_LETTER, OrderKind.HOLD])
def test_orders_of_these_kinds_had_an_effect(kind: OrderKind, tmp_path: Path) -> None:
    """Otherwise the test before this one would show nothing."""
    done = OrderResult.HELD_TO_ITS_END if kind is OrderKind.HOLD else OrderResult.DONE
    assert results(audited(tmp_path, kind))[done] >= 2


def test_a_pause_explains_a_longer_wait_and_is_no_order_of_a_unit(tmp_path: Path) -> None:
    service = AuditedService(tmp_path, has_orders=True)

    def pause(running: Service) -> None:
        for number, kind in enumerate((OrderKind.PAUSE, OrderKind.RESUME_PARTITION)):
            at = running.clock.now()
            running.book.append(P0, Order(id=f"p{number}-{at}", kind=kind, by="ann", because="a test", at=at))
            running.run()
            running.clock.advance(1_000)
        paused.append(1_000)

    paused = list[int]()
    service.live_with(pause, losses=0.1)
    assert service.findings() == []
    assert results(service)[OrderResult.DONE] == 2 * len(paused) >= 4
    assert [each.waited_ms for each in service.audit() if each.kind == PAUSED] == [sum(paused)]


def test_many_orders_for_one_unit_do_not_hold_the_audit_up(released: AuditedService) -> None:
    """Each of these holds may have begun and ended between any two arrivals: 2 to the power of 400 ways."""
    order, outcome = lines_of(orders_of(released))[-1], lines_of(outcomes_of(released))[-1]
    partition_end = orders_of(released).stat().st_size
    for number in range(200):
        held = json.loads(json.dumps(order))
        held["value"] |= {"id": f"hold-{number}", "order": "hold", "for-ms": 1}
        ended = json.loads(json.dumps(outcome))
        ended["headers"] |= {"order-id": f"hold-{number}", "order-offset": str(partition_end)}
        ended["value"] |= {"order": held["value"], "order-offset": partition_end, "result": "held-to-its-end"}
        line = json.dumps(held) + "\n"
        with orders_of(released).open("a") as file:
            file.write(line)
        partition_end += len(line)
        change(outcomes_of(released), lambda lines, ended=ended: [*lines, ended])
    assert released.findings() == []


# Outputs that no order explains


def change(path: Path, mend: Callable[[list[Line]], list[Line]]) -> None:
    write_lines(path, mend(lines_of(path)))


def outcomes_of(service: AuditedService) -> Path:
    return service.directory / "out" / "orders.jsonl"


def orders_of(service: AuditedService) -> Path:
    return service.orders / "partition-0.jsonl"


def test_a_release_without_its_outcome_is_found(released: AuditedService) -> None:
    change(outcomes_of(released), lambda lines: lines[1:])
    found = deviations(released)
    assert {Deviation.RELEASED_WITHOUT_ORDER, Deviation.ORDER_WITHOUT_OUTCOME} <= found
    assert found <= {Deviation.RELEASED_WITHOUT_ORDER, Deviation.ORDER_WITHOUT_OUTCOME, Deviation.FALSELY_INCOMPLETE}


def test_the_last_order_may_have_its_outcome_yet(released: AuditedService) -> None:
    order = lines_of(orders_of(released))[-1]
    order["value"] |= {"id": "another", "unit": "not known"}
    change(orders_of(released), lambda lines: [*lines, order])
    assert released.findings() == []
    assert results(released)[WITHOUT_OUTCOME] == 1


def test_an_order_for_a_unit_that_does_not_exist_makes_no_unit(released: AuditedService) -> None:
    units = Counter(each.kind for each in released.audit())[UNIT]
    lines = lines_of(outcomes_of(released))
    line = json.loads(json.dumps(lines[-1]))
    line["value"]["order"] |= {"unit": "nowhere"}
    write_lines(outcomes_of(released), [*lines, line])
    assert Counter(each.kind for each in released.audit())[UNIT] == units


def test_a_second_outcome_is_found_unless_it_is_marked(released: AuditedService) -> None:
    change(outcomes_of(released), lambda lines: [*lines, lines[0]])
    assert deviations(released) == {Deviation.ORDER_WITH_TWO_OUTCOMES}
    change(outcomes_of(released), lambda lines: [*lines[:-1], _marked(lines[-1])])
    assert released.findings() == []


def test_an_outcome_without_an_order_is_found(released: AuditedService) -> None:
    def stray(lines: list[Line]) -> list[Line]:
        line = json.loads(json.dumps(lines[-1]))
        line["value"]["order-offset"] += 1
        return [*lines, line]

    change(outcomes_of(released), stray)
    assert deviations(released) == {Deviation.OUTCOME_WITHOUT_ORDER, Deviation.ORDER_EXECUTED_TWICE}


def test_an_order_that_did_nothing_although_it_was_done_is_found(released: AuditedService) -> None:
    """Its notifications are as a deadline would have released them."""

    def without_mark(lines: list[Line]) -> list[Line]:
        return [line | {"headers": {k: v for k, v in line["headers"].items() if k != "released-by"}} for line in lines]

    change(released.notifications, without_mark)
    assert deviations(released) == {Deviation.WRONG_HEADERS}


def test_a_notification_that_an_order_released_and_that_is_lost_is_found(released: AuditedService) -> None:
    lines = lines_of(released.notifications)
    lost = next(line for line in lines if "released-by" in line["headers"])
    write_lines(released.notifications, [line for line in lines if line is not lost])
    assert Deviation.LOST in deviations(released)


def test_an_ordered_dead_letter_without_an_order_is_found(tmp_path: Path) -> None:
    service = audited(tmp_path, OrderKind.DEAD_LETTER)
    change(outcomes_of(service), lambda lines: [line for line in lines if line["value"]["result"] != OrderResult.DONE])
    assert Deviation.DEAD_LETTER_UNEXPLAINED in deviations(service)


def test_an_ordered_dead_letter_that_is_missing_is_found(tmp_path: Path) -> None:
    service = audited(tmp_path, OrderKind.DEAD_LETTER)
    letters = [line for line in lines_of(service.dead_letters) if line["headers"]["dead-letter-reason"] != "ordered"]
    write_lines(service.dead_letters, letters)
    assert Deviation.DEAD_LETTER_MISSING in deviations(service)


def _marked(line: Line) -> Line:
    return line | {"headers": line["headers"] | {"possible-duplicate": "true"}}
