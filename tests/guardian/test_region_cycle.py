"""A whole worker whose participants fail: what resets its region, what fails it, and what ends the worker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import P0, P1, Service

from connectors.port import PublishRefused, TransportDamaged, TransportRefused, TransportUnavailable
from domain.errors import OwnershipLost
from guardian.actor_gateway import ActorsFailed
from guardian.region import RegionState
from guardian.region_cycle import RegionCycle, ResetOrder
from storage.port import StorageDamaged, StorageRefused, StorageUnavailable

REFUSED = TransportRefused("topic OUT", "it does not accept this. Mend it")


class Faults:
    """Raises planned errors by the name of the call: before it, or after it was carried out. `for_ever` has those without end."""

    def __init__(self) -> None:
        self.before: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}
        self.for_ever: dict[str, Exception] = {}
        self.polls: list[int] = []

    def around(self, inner: Any) -> Any:
        faults = self

        class Faulty:
            def __getattr__(self, name: str) -> Any:
                found = getattr(inner, name)
                if not callable(found):
                    return found

                def call(*arguments: Any) -> Any:
                    if name == "poll":
                        faults.polls.append(arguments[0])
                    faults.look(faults.before, name)
                    if error := faults.for_ever.get(name):
                        raise error
                    answer = found(*arguments)
                    faults.look(faults.after, name)
                    return faults.around(answer) if name == "open" else answer

                return call

        return Faulty()

    def look(self, planned: dict[str, list[Exception]], name: str) -> None:
        if planned.get(name):
            raise planned[name].pop(0)


class Operated:
    """A service with its region, its faults, and the orders of a person."""

    def __init__(self, directory: Path) -> None:
        self.faults = Faults()
        self.service = Service(directory)
        self.service.around_transport = self.service.around_storage = self.faults.around
        self.service.put()
        self.service.start().run()
        self.orders: list[ResetOrder] = []
        self.during_waits: list[Callable[[], None]] = []
        self.begin()

    def begin(self) -> None:
        service = self.service
        service.retry.waits_for_people = True
        self.cycle = RegionCycle(service.cycle, service.servers, service.retry, service.clock, self._wait, self._take)
        self.region = self.cycle.region

    def run(self, cycles: int = 12) -> None:
        for _ in range(cycles):
            self.cycle.run_once()

    def order(self, order_id: str = "1", *, is_forced: bool = False) -> None:
        self.orders.append(ResetOrder(order_id, "ada", is_forced))

    def _wait(self, milliseconds: int) -> None:
        self.service.clock.advance(milliseconds)
        for each in self.during_waits:
            each()

    def _take(self) -> ResetOrder | None:
        return self.orders.pop(0) if self.orders else None


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    made = Operated(tmp_path)
    yield made
    made.service.kill()


CALLS = {
    "poll": REFUSED,
    "publish": REFUSED,
    "load": StorageRefused("server", "it is set to forget. Set it to keep"),
    "commit": StorageRefused("server", "it is set to forget. Set it to keep"),
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_a_participant_that_fails_resets_the_region_and_each_notification_leaves_once(
    operated: Operated, call: str, moment: str
) -> None:
    service = operated.service
    service.tell("u", 1, 3)
    service.tell("w", 1, partition=1)
    operated.run()
    service.tell("u", 2, 4)
    service.tell("w", 2, partition=1)
    service.tell("unknown", 1)
    getattr(operated.faults, moment)[call] = [CALLS[call]]
    operated.run()
    assert (service.sequences("u"), service.sequences("w"), service.sequences("unknown")) == ([1, 2, 3, 4], [1, 2], [1])
    service.tell("u", 5)
    operated.run()
    assert (operated.region.resets, operated.region.attempts, operated.region.state) == (1, 0, RegionState.RUNNING)
    assert len(set(service.numbers)) == len(service.numbers)


@pytest.mark.parametrize(
    ("call", "named"), [("poll", "source"), ("publish", "output"), ("load", "storage"), ("commit", "storage")]
)
def test_the_participant_that_failed_is_named(operated: Operated, call: str, named: str) -> None:
    operated.service.tell("u", 1)
    operated.faults.before[call] = [CALLS[call]]
    operated.run()
    failure = operated.region.failure
    assert failure is not None
    assert (failure.participant, failure.reason) == (named, str(CALLS[call]))


def test_a_participant_that_fails_again_and_again_fails_the_region_which_takes_nothing_in_and_stays(operated: Operated) -> None:
    service = operated.service
    operated.faults.for_ever["publish"] = REFUSED
    service.tell("u", 1)
    operated.run(30)
    assert (operated.region.has_failed, operated.region.resets) == (True, 5)
    assert service.cycle.partitions.owned == {}
    service.tell("u", 2)
    operated.faults.polls.clear()
    operated.run(5)
    assert operated.faults.polls == [0] * 5  # It stays in its group, and takes nothing in.
    assert service.sequences("u") == []


def test_a_region_that_has_failed_goes_on_after_an_order_once_the_cause_is_mended(operated: Operated) -> None:
    service = operated.service
    operated.faults.for_ever["publish"] = REFUSED
    service.tell("u", 1)
    operated.run(30)
    operated.order()
    operated.run(30)
    assert (operated.region.has_failed, operated.region.resets) == (True, 11)  # Ordered, then five more attempts.
    del operated.faults.for_ever["publish"]
    service.tell("u", 2)
    operated.order("2")
    operated.run()
    assert service.sequences("u") == [1, 2]
    assert (operated.region.state, operated.region.find_present_failure()) == (RegionState.RUNNING, None)
    assert len(set(service.numbers)) == len(service.numbers)


def test_an_offset_commit_that_fails_resets_to_the_checkpoint_and_doubles_nothing(operated: Operated) -> None:
    """Everything has left, and the position was not noted: what the takeover reads says that it has left."""
    service = operated.service
    service.tell("u", 1)
    operated.faults.after["publish"] = [PublishRefused("the group has rebalanced"), REFUSED]
    operated.run()
    assert service.sequences("u") == [1]
    assert operated.region.resets == 1
    service.tell("u", 2)
    operated.run()
    assert service.sequences("u") == [1, 2]


def test_a_partition_that_goes_away_during_a_reset_is_not_taken_over(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    service = operated.service
    service.tell("w", 1, partition=1)
    operated.run()
    service.tell("u", 1)
    service.tell("w", 2, partition=1)
    operated.faults.before["publish"] = [REFUSED, REFUSED]
    transport = service.servers.transport

    def rebalance() -> None:
        monkeypatch.setattr(transport, "assignment", lambda: [P0], raising=False)

    operated.during_waits.append(rebalance)
    operated.run()
    assert set(service.cycle.partitions.owned) == {P0}
    assert service.sequences("u") == [1]
    assert service.sequences("w") == [1]  # Its next owner publishes what is pending.
    monkeypatch.setattr(transport, "assignment", lambda: [P0, P1], raising=False)
    operated.run()
    assert service.sequences("w") == [1, 2]


def test_an_old_participants_error_after_a_reset_is_a_refusal_of_the_old_owner_only(operated: Operated) -> None:
    """The storage of the owner before the reset refuses; the owner after it has a token of its own, and goes on."""
    service = operated.service
    service.tell("u", 1)
    operated.run()
    old = service.cycle.partitions.owned[P0].store
    operated.order(is_forced=True)
    operated.run()
    assert service.cycle.partitions.owned[P0].store is not old
    with pytest.raises(OwnershipLost):
        old.load(["u"])
    service.tell("u", 2)
    operated.run()
    assert (service.sequences("u"), operated.region.resets, service.cycle.partitions.losses) == ([1, 2], 1, 0)


def test_an_order_during_a_reset_is_refused_with_a_warning(operated: Operated, caplog: pytest.LogCaptureFixture) -> None:
    operated.faults.before["poll"] = [REFUSED, REFUSED]

    def order_once() -> None:
        if operated.region.ordered is None and not operated.orders:
            operated.order("late", is_forced=True)

    operated.during_waits.append(order_once)
    operated.run(2)
    operated.run(1)
    assert operated.region.ordered is not None
    assert (operated.region.ordered.id, operated.region.ordered.refusal) == ("late", "a reset is under way")
    assert operated.region.resets == 2
    assert "ada ordered a reset of the region, which is refused: a reset is under way" in caplog.text


def test_an_order_with_force_resets_a_region_that_runs_and_says_who(operated: Operated, caplog: pytest.LogCaptureFixture) -> None:
    operated.service.tell("u", 1, 3)
    operated.run()
    operated.order(is_forced=True)
    operated.run()
    operated.service.tell("u", 2)
    operated.run()
    assert operated.service.sequences("u") == [1, 2, 3]
    assert (operated.region.resets, operated.region.attempts) == (1, 0)
    assert "as ada has ordered (region reset --force)" in caplog.text


def test_an_order_without_force_does_not_disturb_a_region_that_runs(operated: Operated) -> None:
    operated.order()
    operated.run()
    assert operated.region.resets == 0
    assert operated.region.ordered is not None
    assert operated.region.ordered.refusal is not None


@pytest.mark.parametrize("call", ["publish", "commit", "load"])
def test_a_server_that_is_away_for_longer_than_the_drain_timeout_resets_the_region_and_counts_for_nothing(
    operated: Operated, call: str
) -> None:
    service = operated.service
    service.tell("u", 1)
    away = TransportUnavailable("no answer") if call == "publish" else StorageUnavailable("no answer")
    operated.faults.for_ever[call] = away
    _let_time_pass(operated, 5_000)
    for _ in range(20):
        operated.cycle.run_once()
        if operated.region.resets:
            break
    assert (operated.region.resets, operated.region.attempts) == (1, 0)
    assert service.retry.unavailable is None
    del operated.faults.for_ever[call]
    operated.run()
    assert service.sequences("u") == [1]
    assert not operated.region.has_failed


def test_an_order_with_force_ends_the_wait_for_a_server(operated: Operated) -> None:
    service = operated.service
    service.tell("u", 1)
    operated.faults.for_ever["commit"] = StorageUnavailable("no answer")
    waits = _let_time_pass(operated, 100)

    def order_once() -> None:
        if operated.region.ordered is None and not operated.orders and len(waits) > 3:
            operated.order(is_forced=True)

    operated.during_waits.append(order_once)
    operated.cycle.run_once()
    del operated.faults.for_ever["commit"]
    operated.run()
    assert (operated.region.resets, operated.region.attempts) == (1, 0)
    assert service.sequences("u") == [1]


def test_a_publication_that_is_refused_for_the_drain_timeout_counts_as_a_failure(operated: Operated) -> None:
    service = operated.service
    service.tell("u", 1)
    operated.faults.for_ever["publish"] = PublishRefused("the group does not settle")
    for _ in range(3):
        operated.cycle.run_once()
    assert operated.region.resets == 0  # Today's patience: a group may take a while.
    service.clock.advance(180_000)
    operated.cycle.run_once()
    assert (operated.region.resets, operated.region.attempts) == (1, 1)
    del operated.faults.for_ever["publish"]
    operated.run()
    assert service.sequences("u") == [1]


def test_a_reset_whose_partitions_another_worker_keeps_taking_is_tried_again_and_counts(operated: Operated) -> None:
    service = operated.service
    service.tell("u", 1)
    operated.run()
    operated.faults.for_ever["open"] = OwnershipLost("another one has it")
    operated.order(is_forced=True)
    operated.run(3)
    assert (operated.region.state, operated.region.attempts) == (RegionState.RESETTING, 0)
    service.clock.advance(180_000)
    operated.run(1)
    assert (operated.region.resets, operated.region.attempts) == (2, 1)
    del operated.faults.for_ever["open"]
    operated.run()
    service.tell("u", 2)
    operated.run()
    assert (service.sequences("u"), operated.region.attempts) == ([1, 2], 0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("publish", TransportDamaged("notifications.jsonl", "it was cut. Restore it")),
        ("commit", StorageDamaged("state.db", "it is damaged; restore it")),
        ("prepare", ActorsFailed("the guardian failed")),
    ],
)
def test_damage_and_failed_actors_end_the_worker(operated: Operated, call: str, error: Exception, monkeypatch: Any) -> None:
    operated.service.tell("u", 1)
    if call == "prepare":

        def fail(_: Any) -> None:
            raise error

        monkeypatch.setattr(operated.service.servers.actors, "prepare", fail)
    else:
        operated.faults.before[call] = [error]
    with pytest.raises(type(error)):
        operated.run()
    assert operated.region.resets == 0


def test_a_service_that_has_only_just_been_started_ends_instead(operated: Operated) -> None:
    operated.service.retry.waits_for_people = False
    operated.service.tell("u", 1)
    operated.faults.before["publish"] = [REFUSED]
    with pytest.raises(TransportRefused):
        operated.run()


def test_nothing_of_a_partition_is_read_until_it_is_taken_over_again(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    service, resting = operated.service, list[set[Any]]()
    service.tell("u", 1)
    operated.run()
    poll = service.servers.transport.poll

    def noted(most: int, wait_ms: int, rest: Any = ()) -> Any:
        resting.append(set(rest))
        return poll(most, wait_ms, rest)

    monkeypatch.setattr(service.servers.transport, "poll", noted, raising=False)
    operated.faults.for_ever["open"] = StorageUnavailable("no answer")
    operated.order(is_forced=True)
    service.tell("u", 2)
    operated.run(3)
    assert resting == [{P0}] * 3
    del operated.faults.for_ever["open"]
    operated.run()
    assert service.sequences("u") == [1, 2]


def test_a_record_that_the_log_has_lost_sets_its_partition_aside_and_the_others_go_on(operated: Operated) -> None:
    service = operated.service
    service.tell("u", 1)
    service.tell("w", 1, partition=1)
    operated.run()
    operated.faults.before["poll"] = [REFUSED]
    operated.faults.before["position"] = [REFUSED]
    service.tell("u", 2)
    service.tell("w", 2, partition=1)
    operated.run(1)
    operated.run(1)
    assert len(service.cycle.partitions.owned) == 1
    operated.run()
    assert (service.sequences("u"), service.sequences("w")) == ([1, 2], [1, 2])


def _let_time_pass(operated: Operated, milliseconds: int) -> list[int]:
    """Let each pause between two tries take so long; returns the pauses."""
    pauses: list[int] = []

    def wait(_: int) -> None:
        pauses.append(milliseconds)
        operated._wait(milliseconds)

    operated.service.retry._wait = wait
    return pauses
