"""The report of a worker: its state, waiting units and their reasons, partitions, and counts."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from guardian.metrics import CycleTimes, HistogramReport
from resequencer.clock import Instant, instant_text


class State(StrEnum):
    """The states in the order of a worker's life. In the `… unavailable` states the service waits and continues by itself.

    A worker is `resetting` while its region goes back to the last checkpoint, and `failed` when that did not help: it waits for
    an operator then.
    """

    STARTING = "starting"
    READY = "ready"
    HEALING = "healing"
    SOURCE_UNAVAILABLE = "source unavailable"
    STORAGE_UNAVAILABLE = "storage unavailable"
    OUTPUT_UNAVAILABLE = "output unavailable"
    RESETTING = "resetting"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"


STALE_AFTER_MS = 10_000
"""The default of `worker.stale-after`. A process beside the workers reports every second, and is stale after this time."""


class UnitWait(msgspec.Struct, frozen=True):
    """A unit in which something waits: since when, for what, and until when (kind `call`: since when its handler is called)."""

    unit: str
    partition: str
    waits_for: str
    kind: str
    since: str
    until: str
    stashed: int


class PartitionStatus(msgspec.Struct, frozen=True):
    """How far a partition was read and acknowledged, and its output that is not sent. `held_by` is the offset that holds it back.

    `slot` owns it. `lag` is how far its log goes beyond `read_to`: offsets on Kafka, bytes on files. Its worker computes it after
    a poll; everything that shows a lag takes this one. It is None while the worker does not poll, because a server does not
    answer or a cycle is long: the log may grow. Records of an open transaction are part of it; `lag_to_stable_end` leaves them
    out. `lag_ms` is for how long at most the oldest unread record has been unread, None if that is not known; while `lag` is
    None, the oldest record that there may be. `held_since` is when `held_by` began to hold the position back, and
    `held_by_unit` the unit for which a storage without durability keeps it back. `paused_by` is who paused it by an order, and
    `paused_since` when.
    """

    partition: str
    read_to: int
    acknowledged: int
    unpublished: int
    held_by: int | None
    slot: int = 0
    lag: int | None = None
    lag_to_stable_end: int | None = None
    lag_ms: int | None = None
    held_since: str | None = None
    held_by_unit: str | None = None
    paused_by: str | None = None
    paused_since: str | None = None


class UntakenPartition(msgspec.Struct, frozen=True):
    """A partition that is assigned to `slot` but not taken over yet: what is unavailable, why, and when the next try is."""

    partition: str
    unavailable: str
    reason: str
    next_try_at: str
    slot: int = 0


class Units(msgspec.Struct, frozen=True):
    """`active` units have an actor; in `waiting` ones something waits; `backlogged` deadlines wait for unread records.

    `held` are the waiting units that an order holds.
    """

    active: int = 0
    waiting: int = 0
    stashed_envelopes: int = 0
    stashed_bytes_in_memory: int = 0
    backlogged: int = 0
    held: int = 0


class CallsStatus(msgspec.Struct, frozen=True):
    """The calls of a handler that waits: those under way, those that wait to begin, and those that continue after their time-out.

    `longest` is the unit whose call is under way for the longest time, in milliseconds `longest_ms`. `lingering_units` are a few
    of the units whose calls continue.
    """

    under_way: int = 0
    waiting: int = 0
    lingering: int = 0
    longest: str | None = None
    longest_ms: int = 0
    lingering_units: tuple[str, ...] = ()


class ServerStatus(msgspec.Struct, frozen=True):
    """Whether the source, the storage or the output answers the worker, since when that is so, and why it does not."""

    is_available: bool
    since: str
    reason: str | None = None


class ParticipantStatus(msgspec.Struct, frozen=True):
    """A source or sink of a region, what it can do, and why its last call failed (guardian/ports.py)."""

    name: str
    role: str
    can_replay: bool | None
    is_transactional: bool | None
    remembers: bool
    problem: str | None = None


class RegionStatus(msgspec.Struct, frozen=True):
    """The region of a worker: docs/regions.md.

    `sequence` counts the intervals with work that were completed since the start of the process, `resets` the resets, `attempts`
    those in a row without a completed interval. Durations are in milliseconds, those of the last interval with work and of the
    last reset; None before there was one. `failed` is the participant that failed last (`units`: their turns took too long), and
    `failure` why. `answered` is the id of the last reset that was ordered, `answer` what came of it, `has_obeyed` whether it
    was done.
    """

    state: str
    sequence: int
    resets: int
    attempts: int
    participants: tuple[ParticipantStatus, ...]
    drain_ms: int | None = None
    checkpoint_ms: int | None = None
    publication_ms: int | None = None
    reset_ms: int | None = None
    failed: str | None = None
    failure: str | None = None
    failed_at: str | None = None
    answered: str | None = None
    answer: str | None = None
    has_obeyed: bool = False


class ExitCause(StrEnum):
    """What ended a worker, as reports count it; `ORDERED`: an operator ordered it.

    An exit with an envelope in flight is the envelope's, if it may be its doing.
    """

    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    HUNG = "hung"
    RECORD = "record"
    ORDERED = "told"


class StatusReport(msgspec.Struct, frozen=True):
    """One report of the worker in `slot`; instants in ISO 8601 (UTC), counts since the start of the process.

    `process_id` is the service's, `worker_process_id` the worker's own; None where no worker has reported yet, or it ended.
    `restarts` counts the workers that ended in this slot under this supervisor, `last_exit` is how the last of them did;
    `restart_causes` counts them by their `ExitCause`.
    `unavailable` are the servers that handlers cannot reach, with how many units wait for each.
    `deadlines` says how long what is stashed waits, where that is learned. `notes` are sentences: what is not as it should be,
    and goes on all the same. `servers` has the source, the storage and the output, as far as their state is known.
    `histograms` are durations since the start of the process, by name (guardian/metrics.py). `lookups_created_at` is when the
    lookups in use were built. `orders` counts outcomes of orders by kind and result (`release done`).
    `region` is None before the worker has its parts, and where several workers' reports are combined. `calls` is None if the
    handler is called in the turn.
    The worker is stale if the report is older than `stale_after_ms`.
    """

    state: State
    reason: str | None
    process_id: int
    configuration: str
    started_at: str
    reported_at: str
    units: Units = Units()
    oldest_waits: tuple[UnitWait, ...] = ()
    partitions: tuple[PartitionStatus, ...] = ()
    counts: Mapping[str, int] = {}
    notifications: Mapping[str, int] = {}
    dead_letters: Mapping[str, int] = {}
    longest_wait_ms: int = 0
    restarts: int = 0
    last_exit: str | None = None
    slot: int = 0
    worker_count: int = 1
    untaken: tuple[UntakenPartition, ...] = ()
    last_cycle: CycleTimes | None = None
    lookups_version: str | None = None
    deadlines: str | None = None
    unavailable: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()
    worker_process_id: int | None = None
    restart_causes: Mapping[str, int] = {}
    servers: Mapping[str, ServerStatus] = {}
    histograms: Mapping[str, HistogramReport] = {}
    lookups_created_at: str | None = None
    orders: Mapping[str, int] = {}
    stale_after_ms: int = STALE_AFTER_MS
    region: RegionStatus | None = None
    calls: CallsStatus | None = None

    @property
    def is_standing_by(self) -> bool:
        """Return whether the worker is ready and has no partition, because others have them all."""
        return self.state is State.READY and not self.partitions


class Identity(msgspec.Struct, frozen=True):
    """The identity in a report. `process_id` is the process id of the service: its supervisor's, or its own without one.

    `worker_process_id` is that of the worker which reports, if one does.
    """

    process_id: int
    configuration: str
    started_at: Instant
    restarts: int = 0
    last_exit: str | None = None
    slot: int = 0
    worker_count: int = 1
    worker_process_id: int | None = None
    restart_causes: Mapping[str, int] = {}
    stale_after_ms: int = STALE_AFTER_MS


def report(identity: Identity, state: State, reason: str | None, now: Instant) -> StatusReport:
    """Make a report without metrics: before they exist, and after the end."""
    return StatusReport(
        state,
        reason,
        identity.process_id,
        identity.configuration,
        instant_text(identity.started_at),
        instant_text(now),
        restarts=identity.restarts,
        last_exit=identity.last_exit,
        slot=identity.slot,
        worker_count=identity.worker_count,
        worker_process_id=identity.worker_process_id,
        restart_causes=identity.restart_causes,
        stale_after_ms=identity.stale_after_ms,
    )
