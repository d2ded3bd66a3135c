"""Instants and durations as the page says them."""

from __future__ import annotations

import pytest

from notification_service.jobs.audit.markup import clock_label, duration_words, instant_words
from notification_service.jobs.audit.summary import DURATIONS_MS

AT = 1_790_005_123_456


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (2_599, "2.5 s"),
        (21_000, "21 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (100_500, "1 min 40 s"),
        (3 * 3_600_000, "3 h"),
        (30 * 86_400_000 + 3_600_000, "30 d 1 h"),
    ],
)
def test_a_duration_is_reported_in_two_units_at_most(milliseconds, words):
    assert duration_words(milliseconds) == words


def test_the_bounds_of_the_bins_read_differently():
    assert len({duration_words(each) for each in DURATIONS_MS}) == len(DURATIONS_MS)


def test_an_instant_is_reported_in_utc():
    assert instant_words(AT) == "2026-09-21 15:38:43 UTC"


def test_the_label_of_an_axis_is_as_exact_as_its_intervals():
    labels = [clock_label(AT, interval) for interval in (100, 1_000, 60_000, 86_400_000)]
    assert labels == ["15:38:43.4", "15:38:43", "09-21 15:38", "2026-09-21"]
