"""The plan of a simulation."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

SAMPLES = tuple(sorted((Path(__file__).parents[1] / "samples").glob("*.xml")))
"""The pain.001 files shipped with the simulator."""


class Events(StrEnum):
    """What is simulated: payments as envelopes of IPF, or the orders of a shop as CloudEvents."""

    PAYMENTS = "payments"
    SHOP = "shop"


class Flows(StrEnum):
    """The number of flows per unit."""

    ONE = "1"
    TWO = "2"
    MIXED = "mixed"


class Numbering(StrEnum):
    """Whether the flows of a unit share one numbering of events or have one each."""

    SHARED = "shared"
    SEPARATE = "separate"
    MIXED = "mixed"


class Schema(StrEnum):
    """The schema version of the envelopes."""

    ONE = "1"
    TWO = "2"
    MIXED = "mixed"


class Keys(StrEnum):
    """Whether all payments are equally busy, or a few of them far busier."""

    UNIFORM = "uniform"
    ZIPF = "zipf"


class Bursts(NamedTuple):
    """A number of envelopes at once, then a silence, repeated."""

    envelopes: int
    silence_ms: int


class Plan(msgspec.Struct, frozen=True):
    """The same plan writes the same bytes; `rate` and `bursts` only determine when.

    `window` is the maximum number of places that an envelope moves in the stream. The shares are of all envelopes, 0 … 1.
    `duplicates` are written twice, `losses` never, and `late` ones `late_after_ms` after everything else. `garbage` counts lines
    that are no envelopes. `conflicts` come with a record of other content under their envelope id, before or after them.

    `max_value_bytes` is the service's limit, so that one piece of garbage can exceed it; None for no such piece. `exponent` is
    used by `Keys.ZIPF` only. `rate` is in lines per second, None for as fast as possible. A burst consists of envelopes, and none
    moves out of its burst. With `is_backlog` late ones follow at once behind everything else: nothing is late for a service that
    is started afterwards. `epoch_at` is the instant at which the first payment begins; no clock is used. Orders of a shop have no
    `schema` and no `pain001`.
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
    epoch_at: int = 1_774_742_400_000  # 2026-03-29T00:00Z; any fixed instant would do.
    keys: Keys = Keys.UNIFORM
    exponent: float = 1.0
    conflicts: float = 0.0
    max_value_bytes: int | None = None
    rate: float | None = None
    bursts: Bursts | None = None
    is_backlog: bool = False
    events: Events = Events.PAYMENTS

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
