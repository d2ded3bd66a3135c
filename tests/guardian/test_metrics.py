"""What a worker measures: waits in the stash, records until their publication, steps of a cycle, and the lag in time."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness.service_under_test import BEGINNING, P0, P1, STEP_MS, FakeClock, Service

from guardian.metrics import HistogramReport, KeysOfUnits
from guardian.ports import Polled, PublishRefused, Transport
from resequencer.clock import Instant
from resequencer.record import Origin, Partition, Record

SECOND = 1_000


class Slow:
    """A transport that has timestamps, and on which each call takes the time that the test says."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.written_at: Instant | None = None
        self.publish_ms = 0
        self.refuses = False

    def around(self, inner: Transport) -> Any:
        slow = self

        class Around:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def poll(self, max_records: int, timeout_ms: int, resting: Collection[Any] = ()) -> Polled:
                polled = inner.poll(max_records, timeout_ms, resting)
                records = tuple(msgspec.structs.replace(each, written_at=slow.written_at) for each in polled.records)
                return msgspec.structs.replace(polled, records=records)

            def publish(self, outputs: Any) -> None:
                if slow.refuses:
                    raise PublishRefused("rebalanced")
                slow._clock.advance(slow.publish_ms)
                inner.publish(outputs)

        return Around()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def slow(service: Service) -> Slow:
    made = Slow(service.clock)
    service.around_transport = made.around
    return made


def measured(service: Service, name: str) -> HistogramReport:
    return service.cycle.metrics.histograms.report()[name]


def test_a_stashed_envelope_is_measured_from_its_stash_to_its_handling(service: Service) -> None:
    service.start().tell("u", 2)
    service.run()
    assert measured(service, "stash_wait").counts[-1] == 0
    service.clock.advance(3 * SECOND)
    service.tell("u", 1)
    service.run()
    assert (measured(service, "stash_wait").counts[-1], measured(service, "stash_wait").sum) == (1, 3.0)


def test_an_envelope_that_need_not_wait_is_not_measured_as_a_wait(service: Service) -> None:
    service.start().tell("u", 2, 1, 3)
    service.run()
    assert service.sequences("u") == [1, 2, 3]
    assert measured(service, "stash_wait").counts[-1] == 0


def test_records_are_measured_from_their_timestamp_to_the_end_of_their_publication(service: Service, slow: Slow) -> None:
    service.start().tell("w", 1)
    service.run()
    slow.written_at, slow.publish_ms = service.clock.now() - 2 * SECOND, 500
    service.tell("u", 1, 2)
    service.run()
    assert measured(service, "record_to_publication").counts[-1] == 2
    assert measured(service, "record_to_publication").sum == 2 * 2.5


def test_records_without_a_timestamp_are_not_measured(service: Service) -> None:
    service.start().tell("u", 1, 2)
    service.run()
    assert measured(service, "record_to_publication").counts[-1] == 0
    assert measured(service, "publication").counts[-1] >= 1


def test_the_timestamp_of_a_stashed_record_survives_a_restart(service: Service, slow: Slow) -> None:
    slow.written_at = BEGINNING - SECOND
    service.start().tell("u", 2)
    service.run()
    service.restart()
    service.clock.advance(4 * SECOND)
    slow.written_at = None
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2]
    assert (measured(service, "record_to_publication").counts[-1], measured(service, "record_to_publication").sum) == (1, 5.0)


def test_what_cannot_leave_is_measured_when_it_has_left(service: Service, slow: Slow) -> None:
    slow.written_at, slow.refuses = BEGINNING, True
    service.start().tell("u", 1)
    service.cycle.run_once()
    service.cycle.run_once()
    assert measured(service, "record_to_publication").counts[-1] == 0
    slow.refuses = False
    service.run_after(7 * SECOND)
    assert (measured(service, "record_to_publication").counts[-1], measured(service, "record_to_publication").sum) == (1, 7.0)


def test_each_cycle_with_work_counts_once_for_each_of_its_steps(service: Service, slow: Slow) -> None:
    slow.publish_ms = 300
    service.start().run()
    assert measured(service, "cycle_poll").counts[-1] == 0
    service.tell("u", 1)
    service.run()
    steps = [measured(service, f"cycle_{step}") for step in ("poll", "decide", "commit", "publish")]
    assert [each.counts[-1] for each in steps] == [1, 1, 1, 1]
    assert steps[-1].sum == 0.3


def test_the_storages_commits_are_counted_for_each_partition(service: Service) -> None:
    service.start().tell("u", 1)
    service.tell("v", 1, partition=1)
    service.run()
    assert set(service.cycle.partitions.owned) == {P0, P1}
    assert measured(service, "storage_commit").counts[-1] >= 2


def test_a_partition_that_is_read_to_its_end_has_no_lag(service: Service) -> None:
    service.start().tell("u", 1)
    service.run()
    assert service.cycle.partitions.owned[P0].find_lag_ms(service.clock.now() + STEP_MS) == 0


def test_the_lag_of_a_partition_counts_from_when_it_was_last_read_to_its_end(tmp_path: Path) -> None:
    service = Service(tmp_path, batch_size=1).start()
    service.tell("u", 1)
    service.run()
    service.clock.advance(2 * SECOND)
    service.run()
    service.tell("u", 2, 3)
    service.clock.advance(9 * SECOND)
    service.cycle.run_once()
    owned = service.cycle.partitions.owned[P0]
    assert owned.find_lag_ms(service.clock.now()) == 9 * SECOND
    service.run()
    assert owned.find_lag_ms(service.clock.now()) == 0
    service.kill()


def test_after_a_start_the_lag_counts_from_the_last_record_read_or_is_not_known(tmp_path: Path) -> None:
    service = Service(tmp_path, batch_size=1)
    slow = Slow(service.clock)
    service.around_transport = slow.around
    service.start().tell("u", 1, 2, 3)
    service.cycle.run_once()
    owned = service.cycle.partitions.owned[P0]
    assert owned.find_lag_ms(service.clock.now()) is None
    slow.written_at = BEGINNING - 60 * SECOND
    service.cycle.run_once()
    assert owned.find_lag_ms(service.clock.now()) == 60 * SECOND
    service.kill()


def keyed(key: bytes | None, partition: int = 0) -> Record:
    return Record(Origin(Partition("T", partition), 1), b"", key)


def found_of(*came: tuple[str, Record]) -> list[bool]:
    keys = KeysOfUnits()
    return [keys.is_found(unit, record) for unit, record in came]


def test_a_unit_whose_records_have_different_keys_is_found_once():
    came = [("u", keyed(b"1")), ("w", keyed(b"2")), ("u", keyed(b"2")), ("u", keyed(b"3")), ("u", keyed(b"1"))]
    assert found_of(*came) == [False, False, True, False, False]


def test_records_without_a_key_are_found_if_they_are_in_different_partitions():
    assert found_of(("u", keyed(None)), ("u", keyed(None)), ("u", keyed(None, 1))) == [False, False, True]
    assert found_of(("u", keyed(b"1")), ("u", keyed(b"1", 1))) == [False, False]


def test_units_that_came_longest_ago_are_forgotten():
    keys = KeysOfUnits()
    assert not any(keys.is_found(f"u{each}", keyed(b"1")) for each in range(10_001))
    assert [keys.is_found(unit, keyed(b"2")) for unit in ("u0", "u10000")] == [False, True]
    assert len(keys._last) == 10_000
