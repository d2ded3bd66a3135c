"""The promises of the service, each by name and number, for a whole worker on real files and a real database.

The detailed proofs are elsewhere: every step's crash in `test_crash_at_every_step.py`, real kills in
`tests/process/`, every bound and every refusal beside the code that makes it.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from harness.crashes.outcomes import Forgets
from harness.crashes.simulation import crash_at, reference, simulate
from harness.examples import examples
from harness.service_under_test import BEGINNING, P0, Service
from harness.workloads.shuffled import workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardian.ports import PartitionOutput, PublishRefused
from guardian.unit_registry import UnitRegistrySettings
from resequencer.errors import OwnershipLost
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import Commit, UnitChange

NewService = Callable[..., Service]
Factory = pytest.TempPathFactory


# 1. A record is acknowledged only when every record before it in its partition is settled.


def test_promise_1_a_position_never_passes_a_record_that_is_not_settled(new_service: NewService) -> None:
    service = new_service(storage="none", acknowledge_handled=True)
    service.tell("settled", 1)
    service.run()
    service.run_after(40_000)
    held_back_at = service.input_size()
    service.tell("waits", 2)
    service.tell("settled", *range(2, 40))
    service.run_after(2_000)
    assert service.stored_positions == {0: held_back_at}
    service.tell("waits", 1)
    service.run()
    service.run_after(40_000)
    assert service.stored_positions == {0: service.input_size()}


def test_promise_1_positions_are_throttled_and_the_last_one_is_given_on_the_way_down(new_service: NewService) -> None:
    service = new_service()
    service.put()
    service.run()
    service.tell("u", 5)
    service.run_after(1)
    service.stop()
    assert service.stored_positions == {0: service.input_size()}


# 2. A crash at any instruction loses no envelope.


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 21])
def test_promise_2_a_crash_at_any_step_loses_no_envelope(seed: int) -> None:
    """At every 21st; tests/service/test_crash_at_every_step.py has each."""
    work = workload(seed)
    expected = reference(work)
    for step in range(1, expected.steps, 21):
        assert crash_at(work, step, expected).problem is None, step


def test_promise_2_without_a_storage_the_source_is_read_again_and_nothing_is_lost(new_service: NewService) -> None:
    service = new_service(storage="none", acknowledge_handled=True)
    service.tell("u", 4, 2)
    service.run_after(2_000)
    for sequence in (3, 1):
        service.kill()
        service.start()
        service.tell("u", sequence)
        service.run_after(2_000)
    assert service.sequences("u") == [1, 2, 3, 4]


# 3. Exactly once: output is stored as pending and numbered, and leaves together with its position.


@pytest.mark.slow
def test_promise_3_whatever_crashes_each_number_leaves_once_and_none_is_left_out() -> None:
    for seed in range(40, 43):
        outcome = simulate(seed)
        assert outcome.problem is None, seed
        left = Counter(each.number for each in outcome.notifications)
        assert not [number for number, times in left.items() if times > 1], seed


# 4. A zombie can do no harm, and the service notices and heals a storage that has forgotten.


def test_promise_4_what_a_zombie_writes_late_has_no_effect(new_service: NewService) -> None:
    service = new_service()
    service.tell("u", 2)
    service.run()
    zombie = service.cycle.partitions.owned[P0].store
    owner = service.servers.storage.open(P0)
    late = Commit(zombie.header.commit + 1, "late", 0, 99, changes=(UnitChange("u", b"the zombie's"),))
    with pytest.raises(OwnershipLost):
        zombie.commit(late)
    assert owner.load(["u"])["u"].state != b"the zombie's"
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2]


def test_promise_4_a_storage_that_has_forgotten_is_healed_and_what_may_repeat_is_marked(new_service: NewService) -> None:
    service = new_service()
    service.tell("u", 1)
    service.tell("v", 2)
    service.run()
    service.kill()
    service.forget_database()
    service.start()
    service.tell("v", 1)
    service.tell("w", 1)
    service.run()
    assert service.cycle.partitions.heals == 1
    notified = [(each.identity, each.is_possible_duplicate) for each in service.notifications]
    assert notified == [("u#A#1", False), ("u#A#1", True), ("v#A#1", False), ("v#A#2", True), ("w#A#1", False)]


@pytest.mark.slow
def test_promise_4_whatever_a_storage_forgets_nothing_is_lost_and_nothing_repeats_unmarked() -> None:
    for seed in range(60, 62):
        assert simulate(seed, Forgets.DATABASE).problem is None, seed


# 5. Order: a unit's notifications leave in the order in which its envelopes were handled.


@given(st.permutations(range(1, 9)), st.integers(1, 8))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_promise_5_a_units_notifications_leave_in_order(
    tmp_path_factory: pytest.TempPathFactory, came: list[int], batch: int
) -> None:
    service = Service(tmp_path_factory.mktemp("order"), batch_size=batch)
    service.tell("u", *came)
    service.start().run()
    service.kill()
    assert service.sequences("u") == list(range(1, 9))


# 6. Bad input costs one dead letter, never a worker; a failing handler delays its unit, never its partition.


def test_promise_6_bad_input_costs_a_dead_letter_with_its_bytes_and_the_rest_goes_on(new_service: NewService) -> None:
    service = new_service()
    bad = [b"\xff\xfe", b"[" * 5_000, b"{}", b'{"key":"u","value":{"processingContext":{}}}', b'{"value":"no envelope"}']
    for number, line in enumerate(bad):
        service.put(line)
        service.tell("u", number + 1)
    service.run()
    assert len(service.dead) == len(bad)
    assert service.sequences("u") == [1, 2, 3, 4, 5]
    assert service.dead[-1].value == b"no envelope"


def test_promise_6_a_handler_that_fails_delays_its_unit_and_no_other(new_service: NewService) -> None:
    service = new_service()
    service.handler.away_until["slow#A#1"] = BEGINNING + 2_000
    service.handler.never.add("broken#A#1")
    service.tell("slow", 1, 2)
    service.tell("broken", 1, 2)
    service.tell("other", 1, 2)
    service.run()
    assert [each.unit for each in service.notifications] == ["broken", "other", "other"]
    service.run_after(3_600)
    assert (service.sequences("slow"), [each.reason for each in service.dead]) == ([1, 2], ["handler-failed"])


# 7. Memory is bounded.


def test_promise_7_a_units_stash_at_its_bound_is_released_as_at_its_deadline(new_service: NewService) -> None:
    service = new_service(resequencer=ResequencerSettings(stash_limit=10))
    service.tell("u", *range(2, 13))
    service.run()
    assert service.report_units().stashed <= 10
    assert service.sequences("u")[:10] == list(range(2, 12))
    assert service.notifications[0].incomplete == "sequence:1"


def test_promise_7_a_workers_stash_at_its_bound_leaves_memory_and_loses_nothing(new_service: NewService) -> None:
    service = new_service(registry=UnitRegistrySettings(stash_bytes=20_000))
    units = [f"u{number}" for number in range(60)]
    for unit in units:
        service.tell(unit, 2)
        service.run()
        assert service.report_units().stashed_bytes <= 20_000
    assert service.report_units().waiting == 60
    for unit in units:
        service.tell(unit, 1)
    service.run()
    assert all(service.sequences(unit) == [1, 2] for unit in units)


def test_promise_7_a_unit_that_hears_nothing_leaves_memory(new_service: NewService) -> None:
    service = new_service()
    for number in range(200):
        service.tell(f"u{number}", 1)
    service.run()
    assert service.report_units().active == 200
    service.run_after(60_000)
    assert service.report_units().active == 0


def test_promise_7_what_cannot_leave_stops_the_intake(new_service: NewService, monkeypatch: pytest.MonkeyPatch) -> None:
    service = new_service()
    service.put()
    service.run()
    transport = service.servers.transport

    def refuse(_: Sequence[PartitionOutput]) -> None:
        raise PublishRefused("the group has moved on")

    service.tell("u", *range(1, 6))
    with monkeypatch.context() as patch:
        patch.setattr(transport, "publish", refuse)
        for sequence in range(6, 20):
            service.cycle.run_once()
            service.tell("u", sequence)
    assert service.cycle.metrics.counts["records"] == 5
    service.run()
    assert service.sequences("u") == list(range(1, 20))
