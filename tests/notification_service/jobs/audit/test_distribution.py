"""Distributions in bins: which are drawn, and where a value lies among them."""

from __future__ import annotations

import pytest

from notification_service.jobs.audit.summary import COUNTS, DURATIONS_MS, Bin, Distribution, Span, place_of, spans_of


def test_bins_are_drawn_from_the_first_with_a_value_to_the_last():
    counted = Distribution((Bin(0, 0), Bin(1, 0), Bin(2, 7), Bin(5, 0), Bin(10, 1)))
    assert spans_of(counted, COUNTS) == [Span(2, 5, 7), Span(5, 10, 0), Span(10, 20, 1)]


def test_bins_go_on_to_the_one_of_a_value_that_has_to_be_shown():
    spans = spans_of(Distribution((Bin(0, 1),)), DURATIONS_MS, shown=21_000)
    assert spans[-1] == Span(20_000, 60_000, 0)
    assert spans_of(Distribution((Bin(0, 0), Bin(1, 3))), COUNTS, shown=0) == [Span(1, 2, 3)]


def test_no_values_have_no_bins():
    assert spans_of(Distribution(), COUNTS, shown=5) == []


@pytest.mark.parametrize(
    ("value", "place"),
    [(0, 0), (2, 0 + 0.5 / 3), (4, 0 + 2.5 / 3), (5, 1 + 0.5 / 5), (19, 2 + 9.5 / 10), (20, 3), (999, 3)],
)
def test_a_value_lies_within_its_bin(value, place):
    assert place_of(value, [Span(2, 5, 1), Span(5, 10, 1), Span(10, 20, 1)]) == pytest.approx(place)


def test_a_value_beyond_the_last_bound_lies_in_the_last_bin():
    assert place_of(5_000_000, [Span(100_000, 1_000_000, 1), Span(1_000_000, None, 1)]) == 1.5
