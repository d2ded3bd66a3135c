"""What comes next of a schedule: ticks that are due, missed, under way, and another expression."""

import pytest

from notification_service.delivery.schedules.core import (
    GRACE_MS,
    MAX_AHEAD,
    NOTED_MS,
    Progress,
    Ticks,
    decode_progress,
    find_next,
    overdue_since,
)
from notification_service.delivery.schedules.settings import Missed
from resequencer.clock import instant_of

HOURLY, DAILY = Ticks("0 * * * *", "UTC"), Ticks("0 18 * * *", "UTC")
NOON = instant_of("2026-03-28T12:00Z")
HOUR_MS = 3_600_000


def done(tick: int = NOON, **other: int) -> Progress:
    return Progress(tick, HOURLY.expression, noted_at=tick, **other)


def test_a_new_schedule_begins_now_and_has_missed_nothing() -> None:
    begun = find_next(None, HOURLY, Missed.ONCE, NOON + 5)
    assert begun == Progress(NOON + 5, HOURLY.expression, NOON + 5)
    assert find_next(begun, HOURLY, Missed.ONCE, NOON + 10) is None


def test_a_tick_is_begun_when_it_is_due() -> None:
    assert find_next(done(), HOURLY, Missed.NONE, NOON + HOUR_MS - 1) is None
    due = find_next(done(total=7), HOURLY, Missed.NONE, NOON + HOUR_MS)
    assert due == Progress(NOON + HOUR_MS, HOURLY.expression, NOON + HOUR_MS, after="", total=7, run_from=NOON + HOUR_MS)


def test_of_missed_ticks_the_last_is_made_once_or_all_are_left_out() -> None:
    late = NOON + 5 * HOUR_MS + GRACE_MS + 1
    once, none = (find_next(done(), HOURLY, missed, late) for missed in (Missed.ONCE, Missed.NONE))
    assert once is not None
    assert none is not None
    assert (once.tick, once.is_done) == (NOON + 5 * HOUR_MS, False)
    assert (none.tick, none.is_done) == (NOON + 5 * HOUR_MS, True)
    assert find_next(none, HOURLY, Missed.NONE, late) is None


def test_a_tick_under_way_is_ended_however_late_and_whatever_the_expression_is_now() -> None:
    under_way = Progress(NOON, HOURLY.expression, NOON, after="61", made=1, total=1)
    for ticks in (HOURLY, DAILY):
        assert find_next(under_way, ticks, Missed.NONE, NOON + 100 * HOUR_MS) == under_way


def test_another_expression_has_no_missed_ticks() -> None:
    morning = Ticks("0 9 * * *", "UTC")
    found = find_next(done(), morning, Missed.ONCE, NOON + 24 * HOUR_MS)
    assert found is not None
    assert found.is_done
    assert found.expression == morning.expression
    assert find_next(found, morning, Missed.ONCE, NOON + 25 * HOUR_MS) is None
    assert find_next(found, morning, Missed.ONCE, NOON + 45 * HOUR_MS) is not None


def follow(progress: Progress, *nows: int, missed: Missed = Missed.ONCE) -> tuple[Progress, list[int]]:
    """Do all that is due at these instants; return the progress then, and the ticks that were made."""
    made = []
    for now in nows:
        while (due := find_next(progress, HOURLY, missed, now)) is not None:
            made += [] if due.is_done else [due.tick]
            progress = due.went_on(None, 1, now)
    return progress, made


def test_a_clock_that_is_set_back_by_less_than_a_minute_makes_no_tick_twice_and_sets_nothing_back() -> None:
    assert find_next(done(NOON + HOUR_MS), HOURLY, Missed.ONCE, NOON + HOUR_MS - GRACE_MS) is None


def test_ticks_that_were_made_ahead_are_not_made_again_and_those_before_them_are_made() -> None:
    ahead = NOON + 100 * HOUR_MS
    progress, made = follow(done(), NOON + HOUR_MS, ahead, ahead + HOUR_MS, NOON + HOUR_MS + GRACE_MS)
    assert made == [NOON + HOUR_MS, ahead, ahead + HOUR_MS]
    assert progress.ahead == ((NOON + HOUR_MS, NOON + HOUR_MS), (ahead, ahead + HOUR_MS))
    hours = [NOON + number * HOUR_MS for number in range(2, 104)]
    progress, made = follow(progress, *hours)
    assert made == [each for each in hours if each not in (ahead, ahead + HOUR_MS)]
    assert len(progress.ahead) <= MAX_AHEAD


@pytest.mark.parametrize("between", [(), (NOON + HOUR_MS + GRACE_MS,)], ids=["at once", "after the clock was right"])
def test_a_clock_that_is_further_ahead_later_does_not_hide_what_was_made_before(between: tuple[int, ...]) -> None:
    ahead = (NOON + 50 * HOUR_MS, NOON + 100 * HOUR_MS)
    progress, made = follow(done(), NOON + HOUR_MS, ahead[0], *between, ahead[1], NOON + HOUR_MS + GRACE_MS)
    assert made == [NOON + HOUR_MS, *ahead]
    hours = [NOON + number * HOUR_MS for number in range(2, 104)]
    assert follow(progress, *hours)[1] == [each for each in hours if each not in ahead]


def test_a_tick_that_was_left_out_ahead_is_made_when_its_time_comes() -> None:
    ahead = NOON + 100 * HOUR_MS
    progress, made = follow(done(), ahead + 2 * GRACE_MS, NOON + HOUR_MS, missed=Missed.NONE)
    assert made == []
    progress, made = follow(progress, ahead, missed=Missed.NONE)
    assert made == [ahead]


def test_the_next_tick_made_ahead_does_not_hide_those_that_were_made_before() -> None:
    """The clock is ahead by less than a period: the run of ticks began when it was right."""
    progress, made = follow(done(), NOON + HOUR_MS, NOON + 2 * HOUR_MS, NOON + HOUR_MS + GRACE_MS)
    assert (made, progress.ahead) == (
        [NOON + HOUR_MS, NOON + 2 * HOUR_MS],
        ((NOON + HOUR_MS, NOON + 2 * HOUR_MS),),
    )
    assert follow(progress, NOON + 2 * HOUR_MS, NOON + 3 * HOUR_MS)[1] == [NOON + 3 * HOUR_MS]
    assert overdue_since(progress, HOURLY, NOON + 2 * HOUR_MS) is None


def test_progress_is_noted_again_each_day_so_that_brokers_do_not_forget_it() -> None:
    yearly = Ticks("0 0 1 1 *", "UTC")
    before = Progress(NOON, yearly.expression, NOON, total=3)
    assert find_next(before, yearly, Missed.ONCE, NOON + NOTED_MS) is None
    later = NOON + NOTED_MS + 1
    assert find_next(before, yearly, Missed.ONCE, later) == Progress(NOON, yearly.expression, later, total=3)


def test_what_is_due_and_not_done_is_overdue() -> None:
    assert overdue_since(None, HOURLY, NOON) is None
    assert overdue_since(done(), HOURLY, NOON + 1) is None
    assert overdue_since(done(), HOURLY, NOON + HOUR_MS + 1) == NOON + HOUR_MS
    assert overdue_since(Progress(NOON, HOURLY.expression, NOON, after="61"), DAILY, NOON + 1) == NOON


def test_progress_survives_its_text_and_fits_into_the_metadata_of_an_offset() -> None:
    expression, release = f"{'0,' * 99} ({'x' * 60})", "20261121T192512123Z"
    runs = ((NOON, NOON),) * MAX_AHEAD
    longest = Progress(
        NOON, expression, NOON, after="ff" * 511, release=release, made=10**9, total=10**15, run_from=NOON, ahead=runs
    )
    assert decode_progress(longest.encode()) == longest
    assert len(longest.encode()) < 4_096
