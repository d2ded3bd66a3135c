"""Resets of a region with participants that fail: what they leave behind, and when the region gives up."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.service_under_test import P0, Service
from harness.watched import Watched, Watcher
from msgspec.structs import replace

from guardian.actor_gateway import ActorsFailed
from guardian.ports import PublishRefused, TransportRefused, TransportUnavailable
from guardian.region import MustReset, RegionLimits, RegionState
from resequencer.errors import OwnershipLost
from resequencer.order import Order, OrderKind, OrderResult
from resequencer.storage_port import StorageRefused, StorageUnavailable

REFUSED = TransportRefused("queue EVENTS", "the broker says no. Give the right")
MOST = 3


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def service(tmp_path: Path, watcher: Watcher) -> Iterator[Service]:
    made = Service(tmp_path, region=RegionLimits(max_resets=MOST), has_orders=True)
    made.around_transport = lambda transport: Watched(transport, watcher)
    made.around_storage = lambda storage: Watched(storage, watcher)
    made.put()
    made.start().run()
    made.retry.waits_for_people = True
    watcher.calls.clear()
    yield made
    made.kill()


def cycles(service: Service, count: int) -> None:
    for _ in range(count):
        service.cycles.run_once()


@pytest.mark.parametrize("call", ["poll", "publish", "assignment"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_participant_that_refuses_once_costs_a_reset_and_nothing_else(
    service: Service, watcher: Watcher, call: str, moment: str
) -> None:
    service.tell("u", 2)
    cycles(service, 2)
    getattr(watcher, moment)[call] = [REFUSED]
    service.tell("u", 1, 3)
    cycles(service, 4)
    service.tell("u", 4)
    cycles(service, 1)
    region = service.cycles.region
    assert (service.sequences("u"), region.resets, region.attempts, region.state) == ([1, 2, 3, 4], 1, 0, RegionState.RUNNING)
    assert service.cycle.partitions.heals == 0


def test_a_reset_loads_units_anew_and_reads_the_position_of_the_participants(service: Service, watcher: Watcher) -> None:
    service.tell("u", 2)
    cycles(service, 2)
    assert service.report_units().active == 1
    watcher.before["poll"] = [REFUSED]
    service.cycles.run_once()
    assert (service.cycle.partitions.owned, service.report_units().active) == ({}, 0)
    watcher.calls.clear()
    service.tell("u", 1)
    cycles(service, 2)
    assert watcher.names("position", "open", "seek", "load") == ["position", "open", "seek", "load"]
    assert service.sequences("u") == [1, 2]


def test_what_was_not_committed_is_read_again_and_what_was_is_not(service: Service, watcher: Watcher) -> None:
    watcher.after["publish"] = [REFUSED]
    service.tell("u", 1)
    cycles(service, 4)
    assert (service.sequences("u"), len(watcher.commits())) == ([1], 1)


def test_resets_in_a_row_without_an_interval_fail_the_region_which_takes_nothing_in(service: Service, watcher: Watcher) -> None:
    watcher.before["publish"] = [REFUSED] * 100
    service.tell("u", 1)
    cycles(service, 20)
    region = service.cycles.region
    assert (region.state, region.resets, service.cycle.partitions.owned) == (RegionState.FAILED, MOST, {})
    assert region.failure is not None
    assert region.failure.reason == str(REFUSED)
    assert service.sequences("u") == []


def test_a_failed_region_stays_in_its_group_and_reads_no_record(service: Service, watcher: Watcher) -> None:
    watcher.before["publish"] = [REFUSED] * 100
    service.tell("u", 1)
    cycles(service, 20)
    watcher.calls.clear()
    watcher.before["poll"] = [TransportUnavailable("away"), REFUSED]
    cycles(service, 3)
    polls = [arguments for name, arguments in watcher.calls if name == "poll"]
    assert [each[0] for each in polls] == [0, 0, 0]
    assert watcher.names("open", "commit", "publish") == []
    assert service.pauses[-3:] == [500, 500, 500]


def test_pauses_between_resets_grow(service: Service, watcher: Watcher) -> None:
    service.tell("u", 1)
    watcher.before["publish"] = [REFUSED] * 100
    service.pauses.clear()
    while service.cycles.region.state is not RegionState.FAILED:
        service.cycles.run_once()
    assert service.pauses == [200, 400, 800]


def test_a_failed_region_goes_on_after_an_order_and_nothing_is_lost_or_doubled(
    service: Service, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    watcher.before["publish"] = [REFUSED] * 100
    service.tell("u", 1, 2)
    cycles(service, 20)
    watcher.before.clear()
    with caplog.at_level(logging.WARNING):
        answer = service.cycles.reset_by("anna", is_forced=False)
    assert (answer.is_done, service.cycles.region.state) == (True, RegionState.RESETTING)
    assert "anna reset the region, which was failed" in caplog.messages
    cycles(service, 4)
    assert (service.sequences("u"), service.cycles.region.state) == ([1, 2], RegionState.RUNNING)


def test_a_region_that_runs_is_reset_only_by_force(service: Service) -> None:
    service.tell("u", 2)
    cycles(service, 2)
    refused = service.cycles.reset_by("anna", is_forced=False)
    assert (refused.is_done, service.cycles.region.resets) == (False, 0)
    assert "--force" in refused.text
    assert service.cycles.reset_by("anna", is_forced=True).is_done
    service.tell("u", 1)
    cycles(service, 3)
    assert (service.sequences("u"), service.cycles.region.resets, service.cycles.region.attempts) == ([1, 2], 1, 0)


@pytest.mark.parametrize("is_forced", [True, False])
def test_an_order_given_during_a_reset_is_refused_with_a_warning(
    service: Service, watcher: Watcher, caplog: pytest.LogCaptureFixture, *, is_forced: bool
) -> None:
    watcher.before["poll"] = [REFUSED]
    service.cycles.run_once()
    with caplog.at_level(logging.WARNING):
        answer = service.cycles.reset_by("anna", is_forced=is_forced)
    assert (answer.is_done, service.cycles.region.resets) == (False, 1)
    assert "refused the reset of the region that anna ordered: a reset is under way" in caplog.messages


@pytest.mark.parametrize("error", [TransportUnavailable("away"), StorageUnavailable("away")])
def test_a_server_that_does_not_answer_is_waited_for_and_is_no_failure(
    service: Service, watcher: Watcher, error: Exception
) -> None:
    watcher.before["publish" if isinstance(error, TransportUnavailable) else "commit"] = [error] * 50
    service.tell("u", 1)
    cycles(service, 3)
    assert (service.sequences("u"), service.cycles.region.resets) == ([1], 0)


def test_a_server_that_is_away_during_a_reset_is_waited_for(service: Service, watcher: Watcher) -> None:
    watcher.before["poll"] = [REFUSED]
    watcher.before["open"] = [StorageUnavailable("away")] * 20
    service.tell("u", 1)
    cycles(service, 30)
    assert (service.sequences("u"), service.cycles.region.resets) == ([1], 1)


def test_an_offset_commit_that_fails_is_made_up_for_by_the_takeover(service: Service, watcher: Watcher) -> None:
    """The original lost the offsets of an interval whose commit failed: it went on behind them."""
    service.tell("u", 1)
    watcher.before["publish"] = [REFUSED]
    cycles(service, 1)
    service.tell("u", 2)
    cycles(service, 4)
    assert (service.sequences("u"), service.stored_positions) == ([1, 2], {0: service.input_size()})


def test_a_partition_that_another_worker_opens_in_a_reset_is_taken_over_last(service: Service, watcher: Watcher) -> None:
    service.tell("u", 1)
    watcher.before["poll"] = [REFUSED]
    service.cycles.run_once()
    watcher.before["open"] = [OwnershipLost("a newer owner opened it")]
    cycles(service, 1)
    assert service.cycle.partitions.owned.keys() == {P0}, "it is still assigned, so the next try comes last"
    cycles(service, 2)
    assert (service.sequences("u"), service.cycles.region.resets) == ([1], 1)


def test_publications_that_are_refused_for_too_long_reset_the_region(service: Service, watcher: Watcher) -> None:
    watcher.before["publish"] = [PublishRefused("the group rebalances")] * 8
    service.tell("u", 1)
    for _ in range(8):
        service.cycles.run_once()
        service.clock.advance(30_000)
    assert service.cycles.region.resets == 1
    cycles(service, 5)
    assert (service.sequences("u"), service.cycles.region.attempts) == ([1], 0)


def test_takeovers_that_are_refused_for_too_long_count_as_a_failure(service: Service, watcher: Watcher) -> None:
    watcher.before["poll"] = [REFUSED]
    watcher.before["open"] = [OwnershipLost("another worker owns it")] * 100
    service.cycles.run_once()
    for _ in range(8):
        service.cycles.run_once()
        service.clock.advance(30_000)
    assert service.cycles.region.resets == 2


def test_turns_that_take_too_long_are_not_committed_and_the_next_interval_is_smaller(tmp_path: Path) -> None:
    service = Service(tmp_path, region=RegionLimits(drain_ms=1_000))
    service.put()
    service.start().run()
    service.retry.waits_for_people = True
    handled, handle = 0, service.handler.handle

    def slow(*arguments):  # type: ignore[no-untyped-def]
        nonlocal handled
        handled += 1
        service.clock.advance(100)
        return handle(*arguments)

    service.handler.handle = slow  # type: ignore[method-assign]
    for number in range(50):
        service.tell(f"u{number}", 1)
    service.cycles.run_once()
    assert (service.cycles.region.attempts, len(service.notifications)) == (1, 0)
    for _ in range(20):
        service.cycles.run_once()
    assert (len(service.notifications), service.cycles.region.resets) == (50, 1)
    assert handled == 100
    service.kill()


@pytest.mark.parametrize(("call", "moment"), [("load", "before"), ("publish", "before"), ("publish", "after")])
def test_an_order_of_an_interval_that_is_reset_is_executed_once(
    service: Service, watcher: Watcher, call: str, moment: str
) -> None:
    service.tell("u", 2)
    cycles(service, 2)
    ((key, waits),) = service.report_units().oldest
    now = service.clock.now()
    order = Order(id="o", kind=OrderKind.RELEASE, by="anna", because="a test", at=now, unit=key.unit, waits_for=waits.waits_for)
    order = replace(order, since=waits.since)
    service.book.append(P0, order)
    service.cycles.reset_by("anna", is_forced=True)
    getattr(watcher, moment)[call] = [REFUSED]
    cycles(service, 5)
    results = [each.result for _, each in service.book.outcomes([P0], 0)]
    assert (service.cycles.region.resets, results, service.sequences("u")) == (2, [OrderResult.DONE], [2])


@pytest.mark.parametrize(
    ("call", "error"), [("load", StorageRefused("state.db", "damaged")), ("commit", StorageRefused("state.db", "damaged"))]
)
def test_damage_still_ends_the_worker(service: Service, watcher: Watcher, call: str, error: Exception) -> None:
    watcher.before[call] = [error]
    service.tell("u", 1)
    with pytest.raises(StorageRefused):
        cycles(service, 3)


def test_actors_that_failed_still_end_the_worker(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ActorsFailed("the guardian failed")

    monkeypatch.setattr(service.servers.actors, "decide", fail)
    service.tell("u", 1)
    with pytest.raises(ActorsFailed):
        cycles(service, 2)


def test_a_service_that_has_not_begun_is_not_reset(service: Service, watcher: Watcher) -> None:
    service.retry.waits_for_people = False
    watcher.before["poll"] = [REFUSED]
    with pytest.raises(TransportRefused):
        service.cycles.run_once()


def test_a_worker_that_stops_is_not_reset(service: Service, watcher: Watcher) -> None:
    service.is_stopping = True
    watcher.before["poll"] = [REFUSED]
    with pytest.raises((TransportRefused, MustReset)):
        service.cycles.run_once()


def test_operator_driven_intervals_take_whole_batches_however_long_their_turns_take(tmp_path: Path, watcher: Watcher) -> None:
    service = Service(tmp_path, batch_size=40, takes_whole_batches=True)
    service.around_transport = lambda transport: Watched(transport, watcher)
    service.put()
    service.start().run()
    for number in range(100):
        service.tell(f"u{number}", 1)
    watcher.calls.clear()
    for _ in range(3):
        service.cycles.run_once()
        service.clock.advance(10_000)
    assert [arguments[0] for name, arguments in watcher.calls if name == "poll"] == [40, 40, 40]
    assert [len(each[0].records) for each in watcher.outputs()] == [40, 40, 20]
    service.kill()
