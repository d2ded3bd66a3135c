"""By how much envelopes are overtaken, and what notifications show about time."""

from harness.driving import Envelopes

from notification_service.jobs.audit.job import Made, Timing, bucket_size
from notification_service.jobs.audit.row_audit import ArrivalOrder, Overtaken
from notification_service.payments.strategies import StrategySettings, make_strategy


def overtaken(strategy, *numbers):
    """Return by how much envelopes `(number, flow)` that arrive a second apart were overtaken."""
    envelopes, order = Envelopes(), ArrivalOrder(make_strategy(StrategySettings(strategy)))
    return [order.of(envelopes(number, flow), at * 1_000) for at, (number, flow) in enumerate(numbers)]


def test_an_envelope_that_comes_in_its_turn_is_not_overtaken():
    assert overtaken("SEQUENCE", (1, "A"), (2, "A"), (4, "A")) == [Overtaken(), Overtaken(), Overtaken()]


def test_depth_is_counted_from_the_highest_and_time_from_the_first_later_one():
    assert overtaken("SEQUENCE", (3, "A"), (5, "A"), (2, "A"))[-1] == Overtaken(depth=3, behind=2, ms=2_000)
    assert overtaken("SEQUENCE", (3, "A"), (5, "A"), (4, "A"))[-1] == Overtaken(depth=1, behind=1, ms=1_000)


def test_flows_are_compared_where_the_strategy_compares_them():
    assert overtaken("SEQUENCE", (3, "A"), (1, "B"))[-1].depth == 2
    assert overtaken("STRICT_SEQUENCE", (3, "A"), (1, "B"))[-1].depth == 0


def test_a_record_was_read_before_anything_was_made_of_a_later_one():
    timing = Timing([Made(0, 1, 5_000, 5_000), Made(0, 3, 2_000, 90_000), Made(0, 4, 70_000, 70_000)], {0: 1_024})
    assert bucket_size(1_024) == 1
    assert timing.find_waited_ms(0, 0) == 88_000
    assert timing.find_waited_ms(0, 3) == 20_000


def test_the_wait_of_the_last_record_and_of_an_unknown_partition_is_unknown():
    timing = Timing([Made(0, 1, 5_000, 5_000)], {0: 1_024})
    assert timing.find_waited_ms(0, 1) is None
    assert timing.find_waited_ms(7, 1) is None
