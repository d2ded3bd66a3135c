"""`step` says in one call what `accepts`, `handled` and `is_late` say."""

import pytest
from harness.driving import Envelopes
from hypothesis import given
from hypothesis import strategies as st

from resequencer.strategies.port import Strategy
from resequencer.strategies.sequence import Sequence, StrictSequence

_ACTS = st.tuples(
    st.sampled_from(("step", "step", "step", "forced", "dead_lettered", "skip")), st.integers(1, 8), st.sampled_from("ABC")
)


@pytest.mark.parametrize("strategy", [Sequence(), StrictSequence()], ids=lambda each: each.name)
@given(st.lists(_ACTS, max_size=30))
def test_after_whatever_came_before_it_says_the_same(strategy: Strategy, acts: list[tuple[str, int, str]]) -> None:
    state, envelopes = strategy.initial(), Envelopes()
    for act, number, flow in acts:
        envelope = envelopes(number, flow)
        expected = None
        if strategy.accepts(state, envelope):
            expected = strategy.handled(state, envelope), strategy.is_late(state, envelope)
        assert strategy.step(state, envelope) == expected  # type: ignore[attr-defined]
        if act == "dead_lettered":
            state = strategy.dead_lettered(strategy.forced(state, envelope), envelope)
        elif act == "step":
            state = state if expected is None else expected[0]
        else:
            state = getattr(strategy, act)(state, envelope) or state
