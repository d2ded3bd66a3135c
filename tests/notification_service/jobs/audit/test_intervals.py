"""The division of a chart's time into intervals."""

import pytest

from notification_service.jobs.audit.counting import interval_of


@pytest.mark.parametrize(
    ("span_ms", "interval_ms"),
    [(0, 100), (7_500, 100), (7_501, 200), (60_000, 1_000), (3_600_000, 60_000), (86_400_000, 1_800_000)],
)
def test_time_is_cut_as_people_divide_it(span_ms, interval_ms):
    assert interval_of(span_ms) == interval_ms


def test_beyond_what_clocks_show_it_is_cut_into_whole_days():
    assert interval_of(200 * 86_400_000) == 3 * 86_400_000
