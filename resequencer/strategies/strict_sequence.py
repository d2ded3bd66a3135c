"""STRICT_SEQUENCE: each flow in its own exact order, even if the input is parallel."""

from resequencer.envelope import DataEnvelope
from resequencer.strategies.flows import (
    MOST_FLOWS,
    LastPerFlow,
    handled_to,
    last_of,
    number_of,
    refuse_one_too_many,
    with_handled_to,
    with_last,
)
from resequencer.strategies.port import Rank, StrategyState


class Lasts(StrategyState, frozen=True, array_like=True):
    """The highest number of each flow that was handled or became a dead letter.

    `dead_ends` lists the flows that end in a dead letter, each with its highest handled number. `handled_before` is the highest
    handled number of the last envelope's flow before that envelope was counted. `dead_lettered` goes back to it.
    """

    observed: LastPerFlow = ()
    dead_ends: LastPerFlow = ()
    handled_before: int = 0


class StrictSequence:
    """Handles an envelope when `sequence <= the flow's last + 1`.

    For a numbering per flow. With a shared numbering most envelopes would wait until their deadline.
    """

    name = "STRICT_SEQUENCE"
    needs_sequence = True
    gathers = False
    state_type = Lasts

    def initial(self) -> Lasts:
        return Lasts()

    def rank(self, envelope: DataEnvelope) -> Rank:
        return Rank(envelope.flow, number_of(envelope))

    def observe(self, state: Lasts, envelope: DataEnvelope) -> Lasts:
        """Return the state unchanged, because only handling counts. Refuse a flow beyond the limit: the state must stay small."""
        if len(state.observed) >= MOST_FLOWS:
            refuse_one_too_many(state.observed, envelope.flow)
        return state

    def accepts(self, state: Lasts, envelope: DataEnvelope) -> bool:
        return number_of(envelope) <= last_of(state.observed, envelope.flow) + 1

    def step(self, state: Lasts, envelope: DataEnvelope) -> tuple[Lasts, bool] | None:
        """Return `handled` and `is_late` if it `accepts` the envelope, else None."""
        number, flow = number_of(envelope), envelope.flow
        last = last_of(state.observed, flow)
        if number > last + 1:
            return None
        if state.dead_ends:
            return self.handled(state, envelope), self.is_late(state, envelope)
        return Lasts(with_last(state.observed, flow, number), (), last), number < last

    def handled(self, state: Lasts, envelope: DataEnvelope) -> Lasts:
        flow, number = envelope.flow, number_of(envelope)
        observed, before = with_last(state.observed, flow, number), handled_to(state.observed, state.dead_ends, flow)
        dead_ends = state.dead_ends and with_handled_to(observed, state.dead_ends, flow, max(before, number))
        return Lasts(observed, dead_ends, before)

    def forced(self, state: Lasts, envelope: DataEnvelope) -> Lasts:
        return self.handled(state, envelope)

    def skip(self, state: Lasts, envelope: DataEnvelope) -> Lasts | None:
        """Return the state after the next number of the envelope's flow was given up; None if the envelope does not wait."""
        if self.accepts(state, envelope):
            return None
        flow, before = envelope.flow, handled_to(state.observed, state.dead_ends, envelope.flow)
        observed = with_last(state.observed, flow, last_of(state.observed, flow) + 1)
        return Lasts(observed, with_handled_to(observed, state.dead_ends, flow, before), state.handled_before)

    def dead_lettered(self, state: Lasts, envelope: DataEnvelope) -> Lasts:
        """Return the state after a dead letter: successors do not wait for it, it is accepted again, and it was not handled."""
        dead_ends = with_handled_to(state.observed, state.dead_ends, envelope.flow, state.handled_before)
        return Lasts(state.observed, dead_ends, state.handled_before)

    def is_late(self, state: Lasts, envelope: DataEnvelope) -> bool:
        return number_of(envelope) < handled_to(state.observed, state.dead_ends, envelope.flow)

    def missing(self, state: Lasts, envelope: DataEnvelope) -> str:
        return f"sequence:{last_of(state.observed, envelope.flow) + 1}"
