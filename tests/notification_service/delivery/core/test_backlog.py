"""A backlog: its rate, and when it will be delivered."""

from notification_service.delivery.core.backlog import MIN_SEEN_MS, SEEN_MS, Backlog, BacklogTrend, make_backlog, merged


def test_a_backlog_that_falls_says_when_it_is_done() -> None:
    assert make_backlog(600, "2026-03-28T18:00:00Z", -2.0).done_in_ms == 300_000


def test_a_backlog_that_does_not_fall_is_done_at_no_known_time() -> None:
    assert [make_backlog(600, None, rate).done_in_ms for rate in (None, 0.0, 0.0004, -0.0004, 3.0)] == [None] * 5


def test_nothing_that_waits_is_done_now() -> None:
    assert make_backlog(0, None, None) == Backlog(0, None, None, 0)


def test_a_rate_is_known_only_when_the_backlog_was_seen_for_some_time() -> None:
    trend = BacklogTrend()
    assert [trend.see(count, now) for count, now in ((100, 0), (90, MIN_SEEN_MS - 1))] == [None, None]
    assert trend.see(80, MIN_SEEN_MS) == -2.0


def test_a_rate_is_that_of_the_last_two_minutes() -> None:
    trend = BacklogTrend()
    for second in range(600):
        rate = trend.see(second * 10 if second < 300 else 6_000 - second * 10, second * 1_000)
    assert rate == -10.0
    assert len(trend._seen) <= SEEN_MS // 1_000 + 1


def test_a_backlog_that_was_not_looked_at_for_long_has_the_rate_of_that_time() -> None:
    trend = BacklogTrend()
    trend.see(100, 0)
    assert trend.see(100 - 60, 10 * SEEN_MS) is None
    assert trend.see(20, 10 * SEEN_MS + MIN_SEEN_MS) == -2.0


def test_the_backlog_of_all_parts_has_the_oldest_of_them_and_the_sum_of_their_rates() -> None:
    parts = [make_backlog(5, "2026-03-28T18:00:00Z", 1.0), None, make_backlog(7, "2026-03-28T17:00:00Z", -3.0)]
    assert merged(parts) == Backlog(12, "2026-03-28T17:00:00Z", -2.0, 6_000)


def test_without_the_rate_of_one_part_the_rate_of_all_is_not_known() -> None:
    assert merged([make_backlog(5, None, -1.0), make_backlog(7, None, None)]) == Backlog(12)
    assert merged([None]) is None
