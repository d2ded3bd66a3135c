"""COMPLETE: all events of a unit wait until its required parts have arrived."""

from resequencer.event import Event
from resequencer.strategies.port import Rank, StrategyState


class Seen(StrategyState, frozen=True, array_like=True):
    """The required parts that the unit has, in order of arrival."""

    parts: tuple[str, ...] = ()


class Completeness:
    """Handles every event once all required parts have arrived. Guarantees completeness, not sequence.

    The rule is in docs/design.md, section 5. `name` identifies the states of these parts.
    """

    needs_sequence = False
    gathers = True
    state_type = Seen

    def __init__(self, name: str, required: tuple[str, ...]) -> None:
        self.name = name
        self.required = required

    def initial(self) -> Seen:
        return Seen()

    def rank(self, envelope: Event) -> Rank:  # noqa: ARG002 - only the order of arrival counts.
        return Rank("", 0)

    def observe(self, state: Seen, envelope: Event) -> Seen:
        if len(state.parts) == len(self.required):
            return state
        came = {part for part in envelope.parts if part in self.required and part not in state.parts}
        return Seen((*state.parts, *sorted(came))) if came else state

    def accepts(self, state: Seen, envelope: Event) -> bool:  # noqa: ARG002 - the same for all envelopes.
        return len(state.parts) == len(self.required)

    def handled(self, state: Seen, envelope: Event) -> Seen:  # noqa: ARG002 - handling completes nothing.
        return state

    def forced(self, state: Seen, envelope: Event) -> Seen:  # noqa: ARG002 - missing parts stay missing.
        return state

    def dead_lettered(self, state: Seen, envelope: Event) -> Seen:  # noqa: ARG002 - its data counts all the same.
        return state

    def is_late(self, state: Seen, envelope: Event) -> bool:  # noqa: ARG002 - there are no sequence numbers.
        return False

    def missing(self, state: Seen, envelope: Event) -> str:  # noqa: ARG002 - missing in the unit, not in the envelope.
        return ",".join(part for part in self.required if part not in state.parts)
