"""What `status` says of stores: how far they are behind, as far as that is known, and since when."""

from pathlib import Path

from notification_service.aggregation.runner import StoreReport
from notification_service.status.aggregation import (
    AggregationReport,
    AggregationStatus,
    StoreCounts,
    StoreStatus,
    aggregation_file,
    aggregation_lines,
    aggregation_notes,
    find_aggregation,
)
from notification_service.wiring.aggregation import _store_status
from resequencer.clock import instant_of, instant_text
from resequencer.record import Partition

NOW = 1_774_740_835_941
EARLY, LATE = instant_text(NOW - 601_000), instant_text(NOW - 599_000)


def test_a_store_that_lacks_a_partition_does_not_say_how_far_it_is_behind() -> None:
    """What it has let go counts as nothing otherwise, so that one that stands still would be 0 behind."""

    def behind(problem: str | None, untaken: int) -> int | None:
        report = StoreReport("payments", problem, (), {Partition("F", 0): 7}, 9, 2, 1, untaken, NOW)
        return _store_status(report).behind

    assert (behind(None, 0), behind("no answer", 0), behind(None, 1)) == (7, None, None)


def test_a_store_of_several_workers_is_as_late_as_the_last_of_them_and_unknown_if_one_does_not_know(tmp_path: Path) -> None:
    knows, knows_not = (
        StoreStatus("payments", behind=7, pending_since=LATE),
        StoreStatus("payments", behind=None, pending_since=EARLY),
    )
    for slot, store in enumerate((knows, knows_not)):
        aggregation_file(tmp_path, slot).write(AggregationReport(17, 7, instant_text(NOW), stores=(store,)))
    found = find_aggregation(tmp_path, 17, 2, NOW)
    assert (found.behind, found.stores[0].pending_since) == (None, EARLY)
    assert aggregation_lines(found)[-1] == "store payments: 0 partitions, 0 commands applied, 0 completed, lag unknown"
    assert find_aggregation(tmp_path, 17, 1, NOW).behind == 7


def test_the_counts_of_each_worker_are_kept_apart_because_they_begin_with_it(tmp_path: Path) -> None:
    for slot in (0, 2):
        stores = (StoreStatus("payments", applied=9, completed=2, dead_letters=slot),)
        aggregation_file(tmp_path, slot).write(AggregationReport(17, 7, instant_text(NOW), stores=stores))
    found = find_aggregation(tmp_path, 17, 3, NOW)
    assert found.store_counts == (StoreCounts("payments", 0, 9, 2, 0), StoreCounts("payments", 2, 9, 2, 2))
    assert found.stores[0].applied == 18


def test_a_store_that_has_been_late_for_ten_minutes_is_noted() -> None:
    status = AggregationStatus((), (StoreStatus("payments", pending_since=EARLY), StoreStatus("jobs", pending_since=LATE)))
    note = f"the store payments is late: of what came before {EARLY} something is not counted yet"
    assert aggregation_notes(status, NOW) == [note]
    assert aggregation_notes(status, instant_of(LATE)) == []
