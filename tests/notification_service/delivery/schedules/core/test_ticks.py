"""The ticks of a cron expression: at both changes of the clocks, each once, and refused expressions."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.delivery.schedules.core import Ticks
from resequencer.clock import instant_of, instant_text

DAY_MS = 86_400_000
BERLIN = "Europe/Berlin"


def ticks_from(cron: str, since: str, number: int, time_zone: str = BERLIN) -> list[str]:
    ticks, at, found = Ticks(cron, time_zone), instant_of(since), []
    for _ in range(number):
        following = ticks.next(at)
        assert following is not None
        at = following
        found.append(instant_text(at)[:16])
    return found


def test_a_tick_has_the_time_of_its_zone_in_summer_and_in_winter() -> None:
    assert ticks_from("0 18 * * MON-FRI", "2026-03-26T20:00Z", 3) == ["2026-03-27T17:00", "2026-03-30T16:00", "2026-03-31T16:00"]


def test_a_tick_whose_time_is_left_out_in_spring_comes_when_that_hour_is_over() -> None:
    assert ticks_from("30 2 * * *", "2026-03-28T00:00Z", 3) == ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]


def test_several_ticks_of_the_hour_that_is_left_out_are_one() -> None:
    assert ticks_from("0,30 2 * * *", "2026-03-28T12:00Z", 2) == ["2026-03-29T01:00", "2026-03-30T00:00"]


def test_a_tick_whose_time_comes_twice_in_autumn_comes_once() -> None:
    assert ticks_from("30 2 * * *", "2026-10-24T12:00Z", 2) == ["2026-10-25T00:30", "2026-10-26T01:30"]
    # Also for a worker that starts between the two.
    between = instant_of("2026-10-25T01:15Z")
    assert Ticks("30 2 * * *", BERLIN).next(between) == instant_of("2026-10-26T01:30Z")
    assert Ticks("30 2 * * *", BERLIN).last(between, between + 1_800_000) is None


def test_ticks_of_each_hour_follow_the_time_that_has_passed() -> None:
    assert ticks_from("30 * * * *", "2026-10-24T23:00Z", 4) == [f"2026-10-{each}" for each in (
        "24T23:30", "25T00:30", "25T01:30", "25T02:30"
    )]  # fmt: skip
    assert ticks_from("30 * * * *", "2026-03-29T00:00Z", 2) == ["2026-03-29T00:30", "2026-03-29T01:30"]


def test_of_many_ticks_the_last_one_is_found() -> None:
    ticks = Ticks("* * * * *", "UTC")
    until = instant_of("2026-03-28T12:00:30Z")
    assert ticks.last(0, until) == instant_of("2026-03-28T12:00Z")
    assert ticks.last(instant_of("2026-03-28T12:00Z"), until) is None
    rare = Ticks("0 0 29 2 *", "UTC")
    assert rare.last(0, until) == instant_of("2024-02-29T00:00Z")
    assert rare.next(until) == instant_of("2028-02-29T00:00Z")


@pytest.mark.parametrize(
    ("cron", "time_zone", "problem"),
    [
        ("0 0 * *", "UTC", "4 fields"),
        ("0 0 * * * *", "UTC", "6 fields"),
        ("61 0 * * *", "UTC", "bad minute"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("0 0 */31 2 MON#5", "UTC", "no day meets it"),
        ("0 0 * * *", "Europe/Atlantis", "no time zone Europe/Atlantis"),
        ("0 0 * * *", "../../etc/passwd", "no time zone"),
    ],
)
def test_an_expression_without_ticks_is_refused_with_the_reason(cron: str, time_zone: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Ticks(cron, time_zone)


@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    st.integers(instant_of("2025-01-01T00:00Z"), instant_of("2027-12-31T00:00Z")),
)
def test_a_daily_tick_comes_once_on_each_day_of_its_zone(minute: int, hour: int, time_zone: str, since: int) -> None:
    ticks, zone, at, days = Ticks(f"{minute} {hour} * * *", time_zone), ZoneInfo(time_zone), since, []
    instants = []
    for _ in range(5):
        following = ticks.next(at)
        assert following is not None
        assert following > at
        at = following
        instants.append(at)
        days.append(datetime.fromtimestamp(at / 1_000, UTC).astimezone(zone).date())
    assert all((after - before).days == 1 for before, after in pairwise(days))
    assert ticks.last(since, at) == at
    assert ticks.last(since, at - 1) == instants[-2]
