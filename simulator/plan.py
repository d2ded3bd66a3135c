"""What a simulation is to do."""

from enum import StrEnum
from pathlib import Path

import msgspec

SAMPLES = tuple(sorted((Path(__file__).parent / "samples").glob("*.xml")))
"""The pain.001 files that come with the simulator."""


class Flows(StrEnum):
    """How many flows a unit runs in."""

    ONE = "1"
    TWO = "2"
    MIXED = "mixed"


class Numbering(StrEnum):
    """Whether the flows of a unit count their events together or each on its own."""

    SHARED = "shared"
    SEPARATE = "separate"
    MIXED = "mixed"


class Schema(StrEnum):
    """The schema version of the envelopes."""

    ONE = "1"
    TWO = "2"
    MIXED = "mixed"


class Plan(msgspec.Struct, frozen=True):
    """The same plan writes the same bytes.

    `window` is how many places among all envelopes one moves at most. The rates are shares of all envelopes, 0 … 1:
    `duplicates` are written once more, `losses` never, `late` only `late_after_ms` after everything else, `garbage` are
    lines that are no envelopes. `epoch_at` is the instant at which the first payment begins; no clock is asked.
    """

    units: int
    seed: int
    flows: Flows = Flows.MIXED
    numbering: Numbering = Numbering.SHARED
    schema: Schema = Schema.MIXED
    window: int = 200
    duplicates: float = 0.02
    losses: float = 0.002
    late: float = 0.002
    late_after_ms: int = 25_000
    garbage: float = 0.001
    partitions: int = 1
    pain001: tuple[Path, ...] = SAMPLES
    epoch_at: int = 1_774_742_400_000  # 2026-03-29T00:00Z, of no meaning but that it stays.

    def __post_init__(self) -> None:
        assert self.units >= 1
        assert self.partitions >= 1
        assert min(self.seed, self.window, self.late_after_ms, self.epoch_at) >= 0
        assert all(0 <= rate <= 1 for rate in (self.duplicates, self.losses, self.late, self.garbage))
        assert self.losses + self.late <= 1
        assert self.pain001
