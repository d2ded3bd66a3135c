"""STRICT_SEQUENCE: each flow in its own exact order, however parallel the intake."""

from domain.envelope import DataEnvelope
from resequencer.strategies.flows import LastPerFlow, last_of, number_of, refuse_one_too_many, with_last
from resequencer.strategies.port import Rank, StrategyState


class Lasts(StrategyState, frozen=True, array_like=True):
    """The highest number handled of each flow."""

    observed: LastPerFlow = ()


class StrictSequence:
    """Handles an envelope when `sequence <= the flow's last + 1`.

    For a numbering per flow: on a shared one it would strand most.
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
        """Only handling counts. A unit of too many flows is refused one more: its state must stay small."""
        refuse_one_too_many(state.observed, envelope.flow)
        return state

    def accepts(self, state: Lasts, envelope: DataEnvelope) -> bool:
        return number_of(envelope) <= last_of(state.observed, envelope.flow) + 1

    def handled(self, state: Lasts, envelope: DataEnvelope) -> Lasts:
        return Lasts(with_last(state.observed, envelope.flow, number_of(envelope)))

    def forced(self, state: Lasts, envelope: DataEnvelope) -> Lasts:
        return self.handled(state, envelope)

    def buried(self, state: Lasts, envelope: DataEnvelope) -> Lasts:  # noqa: ARG002 - it is accepted whenever it comes again.
        return state

    def is_late(self, state: Lasts, envelope: DataEnvelope) -> bool:
        """Without giving up, a number below the flow's last can only be a duplicate, and those never come here."""
        return number_of(envelope) < last_of(state.observed, envelope.flow)

    def missing(self, state: Lasts, envelope: DataEnvelope) -> str:
        return f"sequence:{last_of(state.observed, envelope.flow) + 1}"
