"""The charts of the page."""

from __future__ import annotations

import re
from itertools import pairwise

from notification_service.jobs.audit.chart_sections import Chart, Column, Line, columns_chart, nice_top


def chart(*columns: Column, series: tuple[str, ...] = ("a",), lines: tuple[Line, ...] = (), end: str = "") -> str:
    return columns_chart(Chart("name", "Title", "What it shows.", "things", "axis", columns, series, end, lines))


def column(name: str, *parts: int) -> Column:
    return Column(name, name, parts)


def test_parts_of_a_column_stand_on_top_of_each_other():
    drawn = chart(column("one", 3, 4), column("two", 0, 0), series=("a", "b"))
    parts = [(float(y), float(height)) for y, height in re.findall(r'<rect[^>]* y="([\d.]+)"[^>]* height="([\d.]+)"', drawn)]
    assert len(parts) == 2
    lower, upper = parts
    assert abs(upper[0] + upper[1] - lower[0]) < 0.2


def test_the_axis_ends_at_a_round_number():
    assert [nice_top(highest) for highest in (0, 3, 5, 9, 13, 99, 12_543)] == [4, 4, 8, 12, 20, 120, 20_000]


def test_a_line_stands_at_its_value_and_says_what_it_is():
    drawn = chart(*(column(str(at), 1) for at in range(4)), lines=(Line("median", 1, "median: 2"), Line("deadline", 3, "21 s")))
    assert re.findall(r'<line class="mark (\w+)" x1="([\d.]+)%"', drawn) == [("median", "25.00"), ("deadline", "75.00")]
    labels = re.findall(r'<text class="mark (\w+)"[^>]* y="(\d+)">([^<]+)<', drawn)
    assert [(side, text) for side, _, text in labels] == [("start", "median: 2"), ("end", "21 s")]
    assert len({y for _, y, _ in labels}) == 2, "two labels never share a line of text"


def test_labels_below_the_axis_do_not_touch_whether_the_page_is_wide_or_narrow():
    drawn = chart(*(column("12:34:56.7", 1) for _ in range(60)))
    ticks = re.findall(r'class="middle tick ?(\w*)" x="([\d.]+)%"', drawn)
    for width, pixels in (("narrow", 270), ("wide", 520)):
        places = [float(x) / 100 * pixels for which, x in ticks if which in ("", width)]
        assert len(places) >= 3
        assert all(after - before >= len("12:34:56.7") * 6.5 for before, after in pairwise(places))


def test_axes_are_named_and_numbered_and_the_chart_is_reported_in_words():
    drawn = chart(column("0 s", 100), end="1 s")
    for text in ("things", "axis", ">0 s<", ">1 s<", ">0<", ">30<", ">120<", '<title id="name-title">Title<', "What it shows."):
        assert text in drawn
    assert drawn.count('class="grid"') == 4


def test_the_colours_of_several_series_are_named_and_one_needs_no_name():
    assert "legend" in chart(column("one", 1, 1), series=("a", "b"))
    assert "legend" not in chart(column("one", 1))
