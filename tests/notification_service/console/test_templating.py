"""How values are shown on pages."""

import pytest

from notification_service.console.context import age_shown, instant_shown, rate_text, time_shown
from notification_service.console.find_unit import relative_text
from resequencer.clock import instant_of


@pytest.mark.parametrize(("per_second", "shown"), [(0.0, "0.0"), (1 / 300, "0.003"), (0.1, "0.1"), (12.34, "12.3")])
def test_a_rate_of_rare_events_is_not_shown_as_none(per_second: float, shown: str) -> None:
    assert rate_text(per_second) == shown


def test_an_instant_is_shown_to_the_second_and_a_text_that_is_none_as_it_is() -> None:
    assert instant_shown("2026-03-28T23:33:55.941Z") == "2026-03-28 23:33:55"
    assert instant_shown("soon\x1b") == "soon\\x1b"


@pytest.mark.parametrize(("at", "shown"), [(130_000, "in 2 min 10 s"), (0, "0 s ago"), (-25_000, "25 s ago")])
def test_an_instant_is_told_from_now(at: int, shown: str) -> None:
    assert relative_text(1_000_000 + at, 1_000_000) == shown


def test_an_instant_is_a_time_in_utc_to_which_the_script_adds_that_of_the_reader() -> None:
    exact = "2026-03-28T23:33:55.941Z"
    assert time_shown(exact) == f'<time datetime="{exact}">2026-03-28 23:33:55</time>'
    assert time_shown("<b>soon\x1b") == "&lt;b&gt;soon\\x1b"
    title = 'title="since 2026-03-28 23:33:55 UTC"'
    assert age_shown(exact, instant_of(exact) + 61_000) == f'<time datetime="{exact}" data-age {title}>1 min 1 s</time>'
