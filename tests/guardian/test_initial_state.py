"""A region that an operator resets to its initial state: what comes again, with which mark, and a kill at each step."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from harness.crashes.points import Crash, Fate, Steps, StruckStorage, StruckTransport
from harness.service_under_test import DEADLINE_MS, P0, P1, Service

from guardian.region import RegionLimits, RegionState
from guardian.resets import ResetAnswer
from resequencer.order import Order, OrderKind
from resequencer.storage_port import Snapshot

HOUR = 3_600_000


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, has_orders=True, region=RegionLimits()).start()
    yield made
    made.kill()


def reset(service: Service, *, is_dry_run: bool = False) -> ResetAnswer:
    return service.cycles.reset_to_initial("anna", is_dry_run=is_dry_run)


def settle(service: Service) -> None:
    """Run cycles, with the resets between them, until everything is read and sent."""
    for _ in range(20):
        service.cycles.run_once()
    service.run()


def find(service: Service, unit: str) -> Snapshot | None:
    return service.cycle.partitions.owned[P0].store.load([unit]).get(unit)


def marks(service: Service, unit: str) -> list[tuple[int | None, bool]]:
    return [(each.sequence, each.is_possible_duplicate) for each in service.notifications if each.unit == unit]


def test_everything_is_read_again_and_what_comes_of_it_is_marked_and_has_new_numbers(service: Service) -> None:
    service.tell("u", 1, 2)
    service.tell("waits", 2)
    service.run()
    answer = reset(service)
    assert answer.is_done
    assert "IPF_PROCESSING_DATA-0 again from offset 0 to" in answer.text
    assert service.cycles.region.state is RegionState.RESETTING
    settle(service)
    assert marks(service, "u") == [(1, False), (2, False), (1, True), (2, True)]
    service.tell("waits", 1)
    service.run()
    assert marks(service, "waits") == [(1, False), (2, True)], "what was never handled is no repetition"
    assert len(set(service.numbers)) == len(service.numbers)
    assert service.cycle.partitions.heals == 0


def test_what_comes_later_is_not_marked_and_a_restart_reads_nothing_again(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    reset(service)
    settle(service)
    service.tell("u", 2)
    service.restart()
    service.run()
    assert marks(service, "u") == [(1, False), (1, True), (2, False)]


def test_a_unit_that_had_been_released_begins_again(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.run_after(DEADLINE_MS)
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [2, 1]
    reset(service)
    settle(service)
    assert service.sequences("u")[2:] == [1, 2]
    assert [each.is_late for each in service.notifications] == [False, True, False, False]


def test_units_whose_records_are_not_read_again_are_gone(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    assert find(service, "u") is not None
    reset(service)
    service.cycle.partitions.follow_assignment()
    assert find(service, "u") is None
    assert service.cycle.partitions.owned[P0].read_to == 0


def test_a_hold_ends_with_an_outcome_and_executed_orders_are_not_executed_again(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    for number, what in enumerate([{"kind": OrderKind.PAUSE}, {"kind": OrderKind.RESUME_PARTITION}]):
        service.book.append(P0, Order(id=f"p{number}", by="anna", because="a test", at=service.clock.now(), **what))
    held = Order(id="h", kind=OrderKind.HOLD, by="anna", because="a test", at=service.clock.now(), unit="u", for_ms=HOUR)
    service.book.append(P0, held)
    service.run()
    reset(service)
    settle(service)
    ended = [(each.order.id, each.result.value) for _, each in service.book.outcomes([P0], 0) if each.order]
    assert ended == [("p0", "done"), ("p1", "done"), ("h", "lost-by-heal")]
    assert service.sequences("u") == [1, 1]


def test_a_pause_stays_and_what_is_paused_is_read_again_later(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    given = {"by": "anna", "because": "a test", "at": service.clock.now()}
    service.book.append(P0, Order(id="p", kind=OrderKind.PAUSE, **given))
    service.run()
    reset(service)
    settle(service)
    assert service.sequences("u") == [1]
    service.book.append(P0, Order(id="r", kind=OrderKind.RESUME_PARTITION, **given))
    service.run()
    assert marks(service, "u") == [(1, False), (1, True)]


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(service: Service) -> None:
    service.tell("u", 1)
    service.tell("waits", 2, 3)
    service.tell("v", 1, partition=1)
    service.run()
    header = service.cycle.partitions.owned[P0].store.header
    answer = reset(service, is_dry_run=True)
    assert answer.is_done
    assert "nothing was changed" in answer.text
    assert f"{P0} again from offset 0 to {service.input_size()} (1 waiting unit with 2 envelopes)" in answer.text
    assert f"{P1} again from offset 0 to" in answer.text
    assert service.cycle.partitions.owned[P0].store.header == header
    assert service.cycles.region.resets == 0


def test_it_is_refused_while_a_partition_is_not_taken_over_or_output_is_not_sent(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = reset(service)
    assert (answer.is_done, "the worker owns no partition" in answer.text) == (False, True)
    assert "refused the reset of the region to its initial state that anna ordered" in caplog.text
    service.tell("u", 1)
    service.run()
    reset(service)
    again = reset(service)
    assert (again.is_done, "the region is resetting" in again.text) == (False, True)


def test_it_is_refused_where_a_waiting_envelope_is_not_in_the_log_any_more(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.tell("waits", 2)
    service.run()
    transport = service.servers.transport
    monkeypatch.setattr(transport, "start_offset", lambda _: service.input_size())
    for is_dry_run in (True, False):
        answer = reset(service, is_dry_run=is_dry_run)
        assert (answer.is_done, "1 envelope that wait are not in the log any more" in answer.text) == (False, True)
    assert service.cycles.region.resets == 0


def _played(directory: Path, fates: Callable[[int], Fate]) -> tuple[Service, Steps]:
    """Let a worker with these faults be reset, which is ordered again after a kill, as its order file does."""
    steps = Steps(fates, Random(1))
    service = Service(directory, has_orders=True)
    service.around_transport = lambda transport: StruckTransport(transport, steps)
    service.around_storage = lambda storage: StruckStorage(storage, steps)
    steps.armed = False
    service.start()
    for unit in ("u", "v"):
        service.tell(unit, 1, 2)
        service.tell(unit, 5, partition=1)
    service.tell("waits", 2)
    service.run()
    held = Order(id="h", kind=OrderKind.HOLD, by="anna", because="a test", at=service.clock.now(), unit="v", for_ms=HOUR)
    service.book.append(P0, held)
    service.run()
    steps.armed, is_ordered = True, True
    while True:
        try:
            if service._cycle is None:
                service.start()
                service.run()
            if is_ordered:
                is_ordered = not reset(service).is_done
            settle(service)
            break
        except Crash:
            service.kill()
    steps.armed = False
    service.tell("waits", 1)
    service.run()
    service.stop()
    return service, steps


@pytest.mark.slow
@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.NO_ANSWER])
def test_a_fault_at_any_step_loses_nothing_and_repeats_nothing_without_a_mark(tmp_path: Path, fate: Fate) -> None:
    whole, steps = _played(tmp_path / "whole", lambda _: Fate.GOES_WELL)
    contents = {each.content for each in whole.notifications}
    assert whole.sequences("u") == [1, 2, 1, 2]
    for step in range(1, steps.count + 1):
        struck, _ = _played(tmp_path / str(step), lambda number, step=step: fate if number == step else Fate.GOES_WELL)
        assert {each.content for each in struck.notifications} == contents, step
        first = [each.identity for each in struck.notifications if not each.is_possible_duplicate]
        assert len(first) == len(set(first)), step
        assert struck.sequences("u")[-2:] == [1, 2], step
        assert struck.sequences("waits") == [1, 2], step
        assert len(set(struck.numbers)) == len(struck.numbers), step
        assert [each.outcome.result.value for each in struck.book.outcomes([P0], 0)] == ["lost-by-heal"], step
