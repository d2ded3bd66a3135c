"""What a simulation is to do."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

SAMPLES = tuple(sorted((Path(__file__).parents[1] / "samples").glob("*.xml")))
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


class Keys(StrEnum):
    """Whether all payments come up as often as each other, or a few of them far more often."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


class Bursts(NamedTuple):
    """So many envelopes at once, then silence for so long, and again."""

    envelopes: int
    silence_ms: int


class Plan(msgspec.Struct, frozen=True):
    """The same plan writes the same bytes; `rate` and `bursts` tell when.

    `window` is how many places among all envelopes one moves at most. The shares are of all envelopes, 0 … 1:
    `duplicates` are written once more, `losses` never, `late` only `late_after_ms` after everything else, `garbage` are
    lines that are no envelopes, `conflicts` are followed or preceded by a record that says something else under their
    envelope id. `max_value_bytes` is the service's limit, so that a piece of garbage can exceed it; without it none does.
    `exponent` counts for `Keys.ZIPF` alone. `rate` is in lines per second, None as fast as they can be written; a burst is
    of envelopes, and nothing moves out of its burst. With `is_backlog` late ones follow at once, behind everything
    else: nothing is late for a service that is started afterwards. `epoch_at` is the instant at which the first payment
    begins; no clock is asked.
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
    keys: Keys = Keys.UNIFORM
    exponent: float = 1.0
    conflicts: float = 0.0
    max_value_bytes: int | None = None
    rate: float | None = None
    bursts: Bursts | None = None
    is_backlog: bool = False

    def __post_init__(self) -> None:
        assert self.units >= 1
        assert self.partitions >= 1
        assert self.exponent > 0
        assert self.rate is None or self.rate > 0
        assert self.bursts is None or min(self.bursts) >= 1
        assert not (self.is_backlog and (self.rate or self.bursts))
        assert min(self.seed, self.window, self.late_after_ms, self.epoch_at) >= 0
        assert all(0 <= rate <= 1 for rate in (self.duplicates, self.losses, self.late, self.garbage, self.conflicts))
        assert self.losses + self.late <= 1
        assert self.pain001
