"""The FULL_PAIN001 family: all envelopes wait until the parts of the pain.001 (and named data) have arrived."""

from resequencer.envelope import PAIN_001_PARTS, DataEnvelope
from resequencer.strategies.port import Rank, StrategyState


class Seen(StrategyState, frozen=True, array_like=True):
    """The required parts that the unit has, in order of arrival."""

    parts: tuple[str, ...] = ()


class Completeness:
    """Handles every envelope once all required parts have arrived. Guarantees completeness, not sequence.

    The rule is in docs/design.md, section 5.

    It waits for the three parts of the pain.001, for custom objects with `custom_keys` and for PDS objects with the names
    `pds_keys`.
    """

    needs_sequence = False
    gathers = True
    state_type = Seen

    def __init__(self, name: str, custom_keys: tuple[str, ...] = (), pds_keys: tuple[str, ...] = ()) -> None:
        keys = custom_keys + pds_keys
        self.name = f"{name}[{','.join(keys)}]" if keys else name
        self._required = (
            *PAIN_001_PARTS,
            *(f"customData:{key}" for key in custom_keys),
            *(f"pdsData:{key}" for key in pds_keys),
        )

    def initial(self) -> Seen:
        return Seen()

    def rank(self, envelope: DataEnvelope) -> Rank:  # noqa: ARG002 - only the order of arrival counts.
        return Rank("", 0)

    def observe(self, state: Seen, envelope: DataEnvelope) -> Seen:
        if len(state.parts) == len(self._required):
            return state
        came = {part for part in _parts(envelope) if part in self._required and part not in state.parts}
        return Seen((*state.parts, *sorted(came))) if came else state

    def accepts(self, state: Seen, envelope: DataEnvelope) -> bool:  # noqa: ARG002 - the same for all envelopes.
        return len(state.parts) == len(self._required)

    def handled(self, state: Seen, envelope: DataEnvelope) -> Seen:  # noqa: ARG002 - handling completes nothing.
        return state

    def forced(self, state: Seen, envelope: DataEnvelope) -> Seen:  # noqa: ARG002 - missing parts stay missing.
        return state

    def dead_lettered(self, state: Seen, envelope: DataEnvelope) -> Seen:  # noqa: ARG002 - its data counts all the same.
        return state

    def is_late(self, state: Seen, envelope: DataEnvelope) -> bool:  # noqa: ARG002 - there are no sequence numbers.
        return False

    def missing(self, state: Seen, envelope: DataEnvelope) -> str:  # noqa: ARG002 - missing in the unit, not in the envelope.
        return ",".join(part for part in self._required if part not in state.parts)


def _parts(envelope: DataEnvelope) -> list[str]:
    return [
        *(each.object_type for each in envelope.mds_objects),
        *(f"customData:{each.key}" for each in envelope.custom_objects),
        *(f"pdsData:{each.name}" for each in envelope.pds_objects),
    ]
