"""The state machine of a region, by itself."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.region import STEADY_MS, STOPPING_MS, IntervalTimes, MustReset, Region, RegionLimits, RegionState

LIMITS = RegionLimits(max_resets=5, drain_ms=180_000, refused_ms=60_000)


def goes_on() -> bool:
    return False


def stops() -> bool:
    return True


@pytest.fixture
def region() -> Region:
    return Region(LIMITS)


def interval(region: Region, now: int, *, has_work: bool = True) -> None:
    for step in (RegionState.DRAINING, RegionState.CHECKPOINTING, RegionState.PUBLISHING):
        region.enter(step)
    if has_work:
        region.note_committed()
    region.complete(now)


def fail_and_reset(region: Region, now: int) -> None:
    region.fail("sink jms", "it says no", now)
    if region.state is RegionState.RESETTING:
        region.end_reset(10, now)


def test_an_interval_counts_once_everything_of_it_has_left(region: Region) -> None:
    region.enter(RegionState.PUBLISHING)
    region.note_committed()
    assert (region.sequence, region.state) == (0, RegionState.PUBLISHING)
    region.complete(1)
    assert (region.sequence, region.state) == (1, RegionState.RUNNING)


def test_an_interval_without_work_is_not_counted(region: Region) -> None:
    interval(region, 1, has_work=False)
    assert region.sequence == 0


def test_a_failure_leads_to_a_reset_and_says_who_failed(region: Region) -> None:
    region.fail("sink jms", "it says no", 7)
    assert (region.state, region.resets, region.attempts) == (RegionState.RESETTING, 1, 1)
    assert region.failure is not None
    assert (region.failure.participant, region.failure.reason, region.failure.at) == ("sink jms", "it says no", 7)
    region.end_reset(120, 8)
    assert (region.state, region.reset_ms) == (RegionState.RUNNING, 120)


def test_as_many_resets_in_a_row_as_configured_and_one_more_failure_is_a_failed_region(region: Region) -> None:
    for now in range(LIMITS.max_resets):
        fail_and_reset(region, now)
        assert region.state is RegionState.RUNNING
    region.fail("source jms", "once more", 9)
    assert (region.state, region.resets) == (RegionState.FAILED, LIMITS.max_resets)


def test_a_completed_interval_ends_the_row(region: Region) -> None:
    for now in range(50):
        fail_and_reset(region, now)
        interval(region, now)
    assert (region.state, region.resets, region.attempts) == (RegionState.RUNNING, 50, 0)


def test_intervals_without_work_end_the_row_only_after_a_minute(region: Region) -> None:
    fail_and_reset(region, 0)
    interval(region, STEADY_MS - 1, has_work=False)
    assert region.attempts == 1
    interval(region, STEADY_MS, has_work=False)
    assert region.attempts == 0


def test_work_that_was_committed_before_a_reset_and_has_not_left_counts_only_when_it_leaves(region: Region) -> None:
    region.note_committed()
    fail_and_reset(region, 1)
    region.complete(2)
    assert (region.sequence, region.attempts) == (0, 1)


def test_an_order_resets_a_failed_region_and_the_row_begins_anew(region: Region) -> None:
    for now in range(LIMITS.max_resets + 1):
        fail_and_reset(region, now)
    region.reset_by_order(10)
    assert (region.state, region.attempts, region.resets) == (RegionState.RESETTING, 0, LIMITS.max_resets + 1)
    region.end_reset(1, 11)
    fail_and_reset(region, 12)
    assert region.state is RegionState.RUNNING


@pytest.mark.parametrize("state", list(RegionState))
def test_waiting_for_a_server_hides_each_state_but_the_last_two(region: Region, state: RegionState) -> None:
    region.enter(state)
    is_over = state in (RegionState.FAILED, RegionState.STOPPED)
    assert region.shown(is_waiting=True) is (state if is_over else RegionState.WAITING)
    assert region.shown(is_waiting=False) is state


@pytest.mark.parametrize(
    ("took_ms", "ask", "most"),
    [(180_001, goes_on, "180 s"), (STOPPING_MS + 1, stops, "25 s"), (180_001, stops, "25 s")],
)
def test_turns_that_took_too_long_reset_and_a_stop_caps_the_time(
    region: Region, took_ms: int, ask: Callable[[], bool], most: str
) -> None:
    with pytest.raises(MustReset, match=f"drain-timeout is {most}") as raised:
        region.check_drain(took_ms, 500, ask)
    assert raised.value.are_units


@pytest.mark.parametrize(("took_ms", "ask"), [(180_000, goes_on), (STOPPING_MS, stops), (-5, goes_on)])
def test_turns_in_time_go_on(region: Region, took_ms: int, ask: Callable[[], bool]) -> None:
    region.check_drain(took_ms, 500, ask)


def test_a_stop_does_not_lengthen_a_time_out() -> None:
    with pytest.raises(MustReset, match="is 1 s"):
        Region(RegionLimits(drain_ms=1_000)).check_drain(26_000, 2, stops)


def test_one_turn_may_take_as_long_as_it_takes_because_it_could_not_be_smaller(region: Region) -> None:
    region.check_drain(10 * 180_000, 1, stops)


def test_whether_the_worker_stops_is_asked_only_where_it_matters(region: Region) -> None:
    def ask() -> bool:
        raise AssertionError("it was asked")

    region.check_drain(STOPPING_MS, 500, ask)
    region.note_refused("no", 0, ask)
    region.note_refused("no", STOPPING_MS, ask)


def test_what_is_refused_for_longer_than_the_time_out_resets(region: Region) -> None:
    for now in (1_000, 31_000, 61_000):
        region.note_refused("the group rebalances", now, goes_on)
    with pytest.raises(MustReset, match=r"longer than 60 s \(reset-timeout\): the group rebalances"):
        region.note_refused("the group rebalances", 61_001, goes_on)


def test_what_was_accepted_in_between_begins_the_time_anew(region: Region) -> None:
    region.note_refused("no", 0, goes_on)
    region.note_accepted()
    region.note_refused("no", 60_001, goes_on)


def test_a_partition_that_is_taken_over_and_refused_in_turns_resets_and_fails_in_the_end(region: Region) -> None:
    """After a refusal the partition is dropped, so that for a cycle nothing is refused, and nothing is owed."""
    now = 0
    while region.state is not RegionState.FAILED:
        now += 1_000
        region.note_committed()
        try:
            region.note_refused("another worker publishes for it", now, goes_on)
        except MustReset as error:
            region.fail("sink kafka", str(error), now)
            if region.state is RegionState.RESETTING:
                region.end_reset(1, now)
        else:
            region.complete(now + 500)
        assert now < 3_600_000
    assert (region.sequence, region.resets) == (0, LIMITS.max_resets)


def test_refusals_with_quiet_minutes_in_between_do_not_add_up(region: Region) -> None:
    for now in range(0, 100 * STEADY_MS, STEADY_MS):
        region.note_refused("no", now, goes_on)
    interval(region, 101 * STEADY_MS)
    assert (region.sequence, region.resets) == (1, 0)


def test_a_clock_that_was_set_back_begins_the_time_anew(region: Region) -> None:
    region.note_refused("no", 1_000_000, goes_on)
    region.note_refused("no", 5, goes_on)
    region.note_refused("no", 60_005, goes_on)


def test_a_reset_begins_the_time_anew(region: Region) -> None:
    region.note_refused("no", 0, goes_on)
    fail_and_reset(region, 50_000)
    region.note_refused("no", 61_000, goes_on)


def test_durations_are_those_of_the_last_interval_with_work(region: Region) -> None:
    assert region.times == IntervalTimes(None, None, None)
    region.note_times(IntervalTimes(1, 2, 3))
    assert region.times == IntervalTimes(1, 2, 3)


@given(st.lists(st.sampled_from(["fail", "work", "idle", "order"])), st.integers(1, 7))
def test_it_fails_exactly_when_the_row_is_longer_than_the_limit(steps: list[str], most: int) -> None:
    region, row, now = Region(RegionLimits(max_resets=most)), 0, 0
    for step in steps:
        now += 1
        if step == "order":
            region.reset_by_order(now)
            region.end_reset(0, now)
            row = 0
        elif region.state is RegionState.FAILED:
            continue
        elif step == "fail":
            row += 1
            fail_and_reset(region, now)
        else:
            interval(region, now, has_work=step == "work")
            row = 0 if step == "work" else row
        assert (region.state is RegionState.FAILED) == (row > most)
