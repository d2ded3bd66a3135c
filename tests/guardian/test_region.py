"""The state machine of a region, told by hand."""

import pytest

from guardian.region import Region, RegionSettings, RegionState

BEGINNING = 1_774_740_000_000
SETTINGS = RegionSettings(drain_timeout_ms=180_000, reset_timeout_ms=60_000, max_consecutive_reset_attempts=5)


@pytest.fixture
def region() -> Region:
    return Region(SETTINGS, BEGINNING)


def test_an_interval_drains_is_checkpointed_and_publishes(region: Region) -> None:
    states = [region.state]
    for at, tell in ((10, region.drain), (13, region.checkpoint), (20, region.publish)):
        tell(BEGINNING + at)
        states.append(region.state)
    region.complete(BEGINNING + 45, has_work=True)
    assert states == ["running", "draining", "checkpointing", "publishing"]
    report = region.report()
    assert (report.state, report.interval) == (RegionState.RUNNING, 1)
    assert (report.drain_ms, report.checkpoint_ms, report.publication_ms) == (3, 7, 25)


def test_an_interval_without_work_counts_for_nothing(region: Region) -> None:
    region.drain(BEGINNING)
    region.checkpoint(BEGINNING)
    region.publish(BEGINNING)
    region.complete(BEGINNING, has_work=False)
    assert (region.state, region.interval, region.report().drain_ms) == (RegionState.RUNNING, 0, None)


def test_what_an_earlier_owner_left_is_an_interval_that_begins_with_its_publication(region: Region) -> None:
    region.publish(BEGINNING + 5)
    region.complete(BEGINNING + 9, has_work=True)
    report = region.report()
    assert (report.drain_ms, report.checkpoint_ms, report.publication_ms) == (0, 0, 4)


def test_five_resets_in_a_row_are_tried_and_the_sixth_failure_is_the_last(region: Region) -> None:
    for number in range(5):
        region.fail("kafka", "it is full", BEGINNING + number)
        assert (region.state, region.resets) == (RegionState.RESETTING, number + 1)
        region.end_reset(BEGINNING + number)
    region.fail("kafka", "it is still full", BEGINNING + 9)
    report = region.report()
    assert (report.state, report.resets, report.attempts) == (RegionState.FAILED, 5, 5)
    assert report.failure is not None
    assert (report.failure.participant, report.failure.reason) == ("kafka", "it is still full")


def test_a_complete_interval_ends_the_row_of_resets(region: Region) -> None:
    for _ in range(20):
        region.fail("source", "it flickers", BEGINNING)
        region.end_reset(BEGINNING)
        region.drain(BEGINNING)
        region.complete(BEGINNING, has_work=True)
    assert (region.has_failed, region.resets, region.attempts) == (False, 20, 0)


def test_an_interval_without_work_does_not_end_the_row_of_resets(region: Region) -> None:
    for _ in range(6):
        region.fail("source", "it is broken", BEGINNING)
        if not region.has_failed:
            region.end_reset(BEGINNING)
            region.complete(BEGINNING, has_work=False)
    assert region.has_failed


def test_a_reset_for_a_server_that_does_not_answer_counts_for_nothing(region: Region) -> None:
    for _ in range(100):
        region.reset(BEGINNING)
        region.end_reset(BEGINNING)
    assert (region.has_failed, region.attempts, region.resets) == (False, 0, 100)


def test_the_pause_before_a_reset_doubles_from_the_second_one_in_a_row_on(region: Region) -> None:
    pauses = []
    for _ in range(5):
        region.fail("storage", "no", BEGINNING)
        pauses.append(region.pause_ms)
    assert pauses == [0, 1_000, 2_000, 4_000, 8_000]


@pytest.mark.parametrize("step", ["drain", "checkpoint", "publish"])
def test_an_interval_is_stuck_once_it_has_made_no_progress_for_the_drain_timeout(region: Region, step: str) -> None:
    assert not region.is_stuck(BEGINNING + 10**9)  # It takes in: nothing bounds that.
    getattr(region, step)(BEGINNING)
    assert not region.is_stuck(BEGINNING + 179_999)
    assert region.is_stuck(BEGINNING + 180_000)


def test_a_long_publication_that_makes_progress_is_not_stuck(region: Region) -> None:
    region.publish(BEGINNING)
    for portion in range(10):
        region.note_progress(BEGINNING + portion * 100_000)
        assert not region.is_stuck(BEGINNING + portion * 100_000 + 99_999)


def test_a_reset_is_late_after_the_reset_timeout(region: Region) -> None:
    region.reset(BEGINNING)
    assert not region.is_late(BEGINNING + 59_999)
    assert region.is_late(BEGINNING + 60_000)
    region.end_reset(BEGINNING + 60_001)
    assert not region.is_late(BEGINNING + 10**9)
    assert region.report().reset_ms == 60_001


def test_an_order_resets_a_region_that_has_failed_and_gives_it_all_its_attempts(region: Region) -> None:
    _fail_for_good(region)
    assert region.obey("1", "ada", BEGINNING, is_forced=False) is None
    assert (region.state, region.attempts) == (RegionState.RESETTING, 0)
    ordered = region.report().ordered
    assert ordered is not None
    assert (ordered.id, ordered.by, ordered.refusal) == ("1", "ada", None)


def test_an_order_without_force_is_refused_while_the_region_has_not_failed(region: Region) -> None:
    refusal = region.obey("1", "ada", BEGINNING, is_forced=False)
    assert refusal == "the region is running, and has not failed; --force resets it all the same"
    assert region.resets == 0
    assert region.obey("2", "ada", BEGINNING, is_forced=True) is None
    assert region.is_resetting


@pytest.mark.parametrize("is_forced", [False, True])
def test_an_order_during_a_reset_is_refused(region: Region, *, is_forced: bool) -> None:
    region.fail("output", "no", BEGINNING)
    assert region.obey("1", "ada", BEGINNING, is_forced=is_forced) == "a reset is under way"
    assert (region.resets, region.attempts) == (1, 1)


def test_a_region_that_waits_for_a_server_says_so_unless_it_has_failed(region: Region) -> None:
    region.publish(BEGINNING)
    assert region.report(is_waiting=True).state is RegionState.WAITING
    assert region.state is RegionState.PUBLISHING
    _fail_for_good(region)
    assert region.report(is_waiting=True).state is RegionState.FAILED


def _fail_for_good(region: Region) -> None:
    for _ in range(6):
        region.fail("output", "no", BEGINNING)
    assert region.has_failed
