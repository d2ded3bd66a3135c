"""What records must have, by the strategy."""

import pytest

from notification_service.events.settings import decoding_settings
from resequencer.strategies.sequence import Sequence
from resequencer.strategies.window import OrderBy, Window


@pytest.mark.parametrize("first", [0, 1, None])
def test_zero_is_a_number_unless_the_first_of_the_strategy_is_one(first: int | None) -> None:
    assert decoding_settings(Sequence(first), first, 1).first_sequence == (first or 0)
    assert decoding_settings(Window(OrderBy.SEQUENCE, 1), first, 1).first_sequence == 0


def test_the_strategy_says_whether_a_number_or_a_time_is_needed() -> None:
    for order in OrderBy:
        found = decoding_settings(Window(order, 1), 1, 1)
        assert (found.needs_sequence, found.needs_time) == (order is OrderBy.SEQUENCE, order is OrderBy.TIME)
