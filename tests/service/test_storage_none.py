"""Storage none: late notifications are worthless, yet nothing is lost if the source is the store."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import DEADLINE_MS, P0, Service

from guardian.ports import TransportRefused
from guardian.takeover import find_metadata
from guardian.unit_registry import UnitRegistrySettings
from resequencer.record import Partition

IDLE_MS = 40_000
"""Longer than the idle timeout. The position may follow a throttle later."""


def find_done(service: Service) -> str:
    """Return what is done beyond the last position, as its metadata has it."""
    position = service.servers.transport.position(P0)
    metadata = find_metadata(position.metadata) if position else None
    assert metadata is not None
    return metadata.done


@pytest.fixture
def service(new_service: Callable[..., Service]) -> Service:
    """A service whose position waits for stashed envelopes."""
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
    service.run_after(IDLE_MS)
    service.run_after(2_000)
    assert service.stored_positions == {0: at}
    service.tell("u", 1)
    service.run()
    service.run_after(IDLE_MS)
    service.run_after(2_000)
    assert service.stored_positions == {0: service.input_size()}


def test_the_position_waits_for_the_first_record_of_each_active_unit(service: Service) -> None:
    """After a restart the unit does not know the records before the position, so it would not notice their duplicates."""
    service.tell("idle", 1)
    service.run()
    at = service.input_size()
    service.run_after(IDLE_MS)
    service.tell("active", 1)
    service.run_after(2_000)
    assert service.stored_positions == {0: at}
    service.tell("active", 2)
    service.run_after(2_000)
    assert service.stored_positions == {0: at}
    service.run_after(IDLE_MS)
    assert service.stored_positions == {0: service.input_size()}


def test_what_was_done_beyond_the_position_rebuilds_its_units_in_silence(service: Service) -> None:
    service.handler.never.add("u#A#3")
    service.tell("u", 2, 1, 3)
    service.tell("held", 2)
    service.put(b"garbage")
    service.run_after(2_000)
    for _ in range(3):
        service.kill()
        service.start().run_after(2_000)
    service.tell("u", 4, 2, 5)
    service.tell("held", 1)
    service.run()
    assert (service.sequences("u"), service.sequences("held")) == ([1, 2, 4, 5], [1, 2])
    assert sorted(each.reason for each in service.dead) == ["handler-failed", "undecodable"]


def test_what_a_worker_read_that_then_failed_does_not_count_as_done(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its last position would say of records of the failed cycle that they were done, and they would be lost."""
    service.tell("idle", 1)
    held_at = service.input_size()
    service.tell("held", 2)
    service.tell("u", 1)
    service.run()
    service.clock.advance(IDLE_MS)
    service.tell("u", 2)
    service.run()
    mistake = ArithmeticError("a bug of ours")

    def fail(*_: Any) -> None:
        raise mistake

    service.tell("v", 1)
    with monkeypatch.context() as patch:
        patch.setattr(service.servers.actors, "decide", fail)
        patch.setattr(service.cycle.partitions.owned[P0].positions, "has_moved", lambda: True)
        with pytest.raises(ArithmeticError):
            service.cycle.run_once()
        service.servers.transport.publish(service.cycle.last_positions(mistake))
    assert service.stored_positions[0] <= held_at
    service.kill()
    service.start().run()
    assert (service.sequences("u"), service.sequences("v")) == ([1, 2], [1])


def test_what_was_done_and_not_read_again_yet_stays_done_over_a_second_crash(new_service: Callable[..., Service]) -> None:
    service = new_service(storage="none", acknowledge_handled=True, batch_size=2)
    service.tell("held", 2)
    service.tell("u", *range(1, 9))
    service.run_after(2_000)
    for _ in range(4):
        service.kill()
        service.start()
        service.cycle.run_once()
        service.clock.advance(2_000)
        service.cycle.run_once()
    service.run()
    assert service.sequences("u") == list(range(1, 9))


def test_what_no_longer_fits_into_the_metadata_stops_the_intake_until_deadlines_release_it(
    new_service: Callable[..., Service],
) -> None:
    service = new_service(storage="none", acknowledge_handled=True, done_characters=60)
    for number in range(60):
        service.tell(f"done{number}", 1)
        service.tell(f"held{number}", 2)
    service.run()
    assert service.cycle.metrics.counts["records"] < 60
    lengths = []
    for _ in range(60):
        service.run_after(DEADLINE_MS)
        lengths.append(len(find_done(service)))
    assert max(lengths) <= 60
    assert service.cycle.metrics.counts["records"] == 120
    assert len({each.identity for each in service.notifications}) == len(service.notifications) == 120


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
    service.run_after(IDLE_MS)
    service.stop()
    assert service.stored_positions == {0: service.input_size()}
    service.start().run_after(DEADLINE_MS)
    assert service.sequences("u") == [2, 3]


def test_a_duplicate_of_what_was_released_is_not_told_again_though_the_worker_died_in_between(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.run_after(DEADLINE_MS)
    service.run_after(2_000)
    service.kill()
    service.start()
    service.tell("u", 2)
    service.run()
    for _ in range(3):
        service.run_after(IDLE_MS)
    assert service.sequences("u") == [2]
    service.stop()
    assert service.stored_positions == {0: service.input_size()}


def test_nothing_is_marked_after_a_restart_for_it_forgets_by_design(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.kill()
    service.start()
    service.tell("u", 1)
    service.run()
    assert not any(each.is_possible_duplicate for each in service.notifications)
    assert service.cycle.partitions.heals == 0


def test_numbers_never_repeat_over_restarts(service: Service) -> None:
    for sequence in range(1, 6):
        service.tell("u", sequence)
        service.run()
        service.kill()
        service.start()
    service.run_after(DEADLINE_MS)
    assert len(service.numbers) == len(set(service.numbers))


def test_a_partition_that_goes_and_comes_back_still_holds_what_is_stashed(service: Service) -> None:
    """The units leave memory; the position waits for them, and they are read again."""
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
    service.run()
    service.run_after(DEADLINE_MS)
    assert (service.sequences("u"), service.sequences("done")) == ([2, 3], [1])
    service.run_after(IDLE_MS)
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
    service = new_service(storage="none", acknowledge_handled=True, registry=UnitRegistrySettings(stash_bytes=1_000))
    service.tell("old", 2)
    service.run_after(1)
    for unit in range(3):
        service.tell(f"u{unit}", 2)
        service.run_after(1)
    assert service.notifications[0].identity == "old#A#2"
    assert service.notifications[0].incomplete == "sequence:1"
    assert service.report_units().stashed_bytes <= 1_000


def eight_ahead_of_one_that_waits(service: Service) -> int:
    """Let one envelope wait while eight after it are done, and kill the worker. Return where the waiting line ends."""
    service.tell("held", 2)
    first = service.input_size()
    for number in range(8):
        service.tell(f"done{number}", 1)
    service.run_after(2_000)
    service.kill()
    assert len(service.notifications) == 8
    return first


def cut(service: Service, length: int) -> None:
    with (service.directory / "in" / "partition-0.jsonl").open("r+b") as file:
        file.truncate(length)


def test_a_file_that_was_cut_and_appended_to_is_refused_where_what_was_done_ahead_was_cut_off(service: Service) -> None:
    """Else the appended lines would be taken for done ones, and no notification would be sent for them."""
    first = eight_ahead_of_one_that_waits(service)
    read_to = service.input_size()
    cut(service, first)
    for number in range(6):
        service.tell(f"new{number}", 1)
    with pytest.raises(
        TransportRefused, match=f"has {service.input_size()} bytes but was read up to position {read_to}: it was cut"
    ):
        service.start().run()
    assert len(service.notifications) == 8


def test_a_file_that_was_cut_and_has_become_as_long_again_is_refused_where_no_line_ends(service: Service) -> None:
    first = eight_ahead_of_one_that_waits(service)
    cut(service, first)
    for number in range(9):
        service.tell(f"another{number}", 1)
    with pytest.raises(TransportRefused, match="it was edited"):
        service.start().run()


def test_a_file_that_is_cut_while_what_was_done_ahead_is_read_again_is_refused(new_service: Callable[..., Service]) -> None:
    service = new_service(storage="none", acknowledge_handled=True, batch_size=2)
    eight_ahead_of_one_that_waits(service)
    read_to = service.input_size()
    service.start().cycle.run_once()
    service.cycle.run_once()
    cut(service, service.cycle.partitions.owned[P0].read_to)
    service.tell("new", 1)
    with pytest.raises(TransportRefused, match=f"handled up to offset {read_to}, and its log ends at {service.input_size()}"):
        service.run()


def rewrite_position(service: Service, **changes: Any) -> None:
    """Change positions.json, as a person may edit it."""
    path = service.directory / "out" / "positions.json"
    document = json.loads(path.read_bytes())
    document["partitions"][0].update(changes)
    path.write_text(json.dumps(document))


def test_a_position_that_was_moved_without_what_is_done_beyond_it_is_refused(service: Service) -> None:
    first = eight_ahead_of_one_that_waits(service)
    rewrite_position(service, offset=first)
    with pytest.raises(TransportRefused, match=f"is offset {first}, but the metadata of the position was written for offset 0"):
        service.start().run()
    rewrite_position(service, offset=first, metadata="")
    service.start().run()
    assert len(service.notifications) == 16


class Shortened:
    """A transport whose log now begins at a later offset."""

    def __init__(self, inner: Any, start: int) -> None:
        self._inner, self._start = inner, start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def start_offset(self, _: Partition) -> int:
        return self._start


@pytest.fixture
def retained(service: Service) -> Service:
    """A service whose position waits, at the first line, for a unit whose envelopes are all done; other units follow."""
    service.tell("active", 1)
    service.tell("done", 1)
    service.run_after(2_000)
    assert service.stored_positions == {0: 0}
    return service


def test_where_retention_took_only_what_was_done_reading_goes_on_behind_it(retained: Service) -> None:
    start = retained.input_size()
    retained.tell("last", 1)
    retained.run_after(2_000)
    retained.kill()
    retained.around_transport = lambda inner: Shortened(inner, start)
    retained.start().run()
    retained.tell("active", 2)
    retained.run()
    assert [each.identity for each in retained.notifications] == ["active#A#1", "done#A#1", "last#A#1"]
    retained.run_after(DEADLINE_MS)
    assert retained.sequences("active") == [1, 2]
    retained.run_after(IDLE_MS)
    retained.run_after(IDLE_MS)
    assert retained.stored_positions == {0: retained.input_size()}


def test_where_retention_took_all_that_was_ever_read_reading_goes_on_at_the_end(retained: Service) -> None:
    start = retained.input_size()
    retained.kill()
    retained.around_transport = lambda inner: Shortened(inner, start)
    retained.start().run()
    retained.tell("new", 1)
    retained.run()
    assert [each.identity for each in retained.notifications] == ["active#A#1", "done#A#1", "new#A#1"]


def test_what_retention_took_though_it_waited_is_named(service: Service) -> None:
    service.tell("active", 1)
    service.tell("done", 1)
    waits = service.input_size()
    service.tell("held", 2)
    end = service.input_size()
    service.tell("done", 2)
    service.run_after(2_000)
    start = service.input_size()
    service.kill()
    service.around_transport = lambda inner: Shortened(inner, start)
    assert waits < end < start
    with pytest.raises(TransportRefused, match=rf"the records {waits} to {waits} were never handled and are gone"):
        service.start().run()


def test_what_retention_took_before_it_was_read_is_named(retained: Service) -> None:
    read_to = retained.input_size()
    retained.kill()
    retained.tell("never", 1)
    start = retained.input_size()
    retained.around_transport = lambda inner: Shortened(inner, start)
    with pytest.raises(TransportRefused, match=rf"the records {read_to} to {start - 1} were never handled and are gone"):
        retained.start().run()
