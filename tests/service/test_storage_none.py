"""Storage none: late is worthless, yet nothing is lost where the source is the store."""

from collections.abc import Callable
from pathlib import Path

import pytest
from service_under_test import DEADLINE_MS, Service

from guardian.roster import RosterSettings


@pytest.fixture
def service(new_service: Callable[..., Service]) -> Service:
    """The position waits for what is stashed."""
    return new_service(storage="none", acknowledge_handled=True)


def test_envelopes_leave_in_order_and_once_while_the_process_lives(service: Service) -> None:
    service.tell("u", 2, 2, 1, 1, 3)
    service.run()
    service.run_after(60_000)
    service.tell("u", 3, 4)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4]


def test_the_position_waits_for_the_oldest_stashed_envelope(service: Service) -> None:
    service.tell("done", 1)
    at = service.input_size()
    service.tell("u", 2)
    service.tell("done", 2)
    service.run()
    assert service.stored_positions == {0: at}
    service.tell("u", 1)
    service.run()
    assert service.stored_positions == {0: service.input_size()}


def test_a_crash_loses_no_stashed_envelope(service: Service) -> None:
    service.tell("u", 2, 3)
    service.run()
    service.kill()
    service.start()
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2, 3]


def test_a_crash_loses_no_envelope_under_retry(service: Service) -> None:
    service.handler.away_until["u#A#1"] = service.clock.now() + 1
    service.tell("u", 1)
    service.run()
    service.kill()
    service.start().run_after(1)
    assert service.sequences("u") == [1]


def test_what_is_released_lets_the_position_go(service: Service) -> None:
    service.tell("u", 2, 3)
    service.run_after(DEADLINE_MS)
    service.run_after(DEADLINE_MS)
    service.stop()
    assert service.stored_positions == {0: service.input_size()}
    service.start().run_after(DEADLINE_MS)
    assert service.sequences("u") == [2, 3]


def test_nothing_is_marked_after_a_restart_for_it_forgets_by_design(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.kill()
    service.start()
    service.tell("u", 1)
    service.run()
    assert not any(each.is_possible_duplicate for each in service.told)
    assert service.cycle.ownership.heals == 0


def test_numbers_never_repeat_over_restarts(service: Service) -> None:
    for sequence in range(1, 6):
        service.tell("u", sequence)
        service.run()
        service.kill()
        service.start()
    service.run_after(DEADLINE_MS)
    assert len(service.numbers) == len(set(service.numbers))


def test_a_partition_that_goes_and_comes_back_still_holds_what_is_stashed(service: Service) -> None:
    """The units are in memory still; the position must go on waiting for them, or a crash would lose them."""
    service.tell("u", 2, 3)
    service.run()
    file = service.directory / "in" / "partition-0.jsonl"
    away = Path(file.rename(service.directory / "in" / "away"))
    service.run()
    away.rename(file)
    service.run()
    service.tell("done", 1)
    service.run_after(2_000)
    assert service.stored_positions == {0: 0}
    service.kill()
    service.start()
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2, 3]


def test_a_partition_that_comes_back_is_released_at_its_deadline_and_read_on(service: Service) -> None:
    service.tell("u", 2, 3)
    service.run()
    file = service.directory / "in" / "partition-0.jsonl"
    away = Path(file.rename(service.directory / "in" / "away"))
    service.run()
    away.rename(file)
    service.tell("done", 1)
    service.run_after(DEADLINE_MS)
    assert (service.sequences("u"), service.sequences("done")) == ([2, 3], [1])
    service.stop()
    assert service.stored_positions == {0: service.input_size()}


def test_with_when_settled_a_stash_is_lost_with_the_process_and_nothing_repeats(new_service: Callable[..., Service]) -> None:
    service = new_service(storage="none")
    service.tell("u", 1, 3)
    service.run()
    service.stop()
    service.start().run()
    assert service.sequences("u") == [1]


def test_at_the_bound_of_the_worker_the_oldest_stash_is_released_marked(new_service: Callable[..., Service]) -> None:
    service = new_service(storage="none", acknowledge_handled=True, roster=RosterSettings(stash_bytes=1_000))
    service.tell("old", 2)
    service.run_after(1)
    for unit in range(3):
        service.tell(f"u{unit}", 2)
        service.run_after(1)
    assert service.told[0].identity == "old#A#2"
    assert service.told[0].incomplete == "sequence:1"
    assert service.survey().stashed_bytes <= 1_000
