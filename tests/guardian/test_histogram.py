"""Histograms: which bucket a duration falls into, and what several workers come to together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.metrics import STEP_BOUNDS, WAIT_BOUNDS, Histogram, HistogramReport, sum_of


def observed(*durations_ms: int, bounds: tuple[float, ...] = (0.01, 0.1, 1.0)) -> HistogramReport:
    histogram = Histogram(bounds)
    histogram.observe_all(durations_ms)
    return histogram.report()


def test_a_duration_counts_in_each_bucket_whose_bound_it_does_not_exceed():
    assert observed(10, 11, 1_000, 1_001) == HistogramReport((0.01, 0.1, 1.0), (1, 2, 3, 4), 2.022)


def test_without_durations_all_counts_are_0():
    assert observed() == HistogramReport((0.01, 0.1, 1.0), (0, 0, 0, 0), 0.0)


def test_a_duration_measured_while_the_clock_was_set_back_counts_as_0():
    assert observed(-5_000) == observed(0)


@pytest.mark.parametrize("bounds", [STEP_BOUNDS, WAIT_BOUNDS])
@given(durations=st.lists(st.integers(0, 100_000_000)))
def test_counts_are_what_counting_each_bucket_by_itself_gives(bounds, durations):
    found = observed(*durations, bounds=bounds)
    expected = [sum(each / 1_000 <= bound for each in durations) for bound in bounds]
    assert found.counts == (*expected, len(durations))
    assert found.sum == sum(durations) / 1_000


def test_histograms_of_several_workers_add_up():
    assert sum_of([observed(5), observed(50, 5_000)]) == observed(5, 50, 5_000)


def test_a_histogram_with_other_bounds_is_left_out_of_the_sum():
    assert sum_of([observed(5), observed(5, bounds=(2.0,))]) == observed(5)
