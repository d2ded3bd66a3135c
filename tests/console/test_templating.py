"""How values are shown on pages."""

import pytest

from console.templating import rate_text


@pytest.mark.parametrize(("per_second", "shown"), [(0.0, "0.0"), (1 / 300, "0.003"), (0.1, "0.1"), (12.34, "12.3")])
def test_a_rate_of_rare_events_is_not_shown_as_none(per_second: float, shown: str) -> None:
    assert rate_text(per_second) == shown
