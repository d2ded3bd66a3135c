"""Jobs as operators see them: what is shown of a job, of a gate, and of rows."""

from enum import StrEnum

import msgspec

from notification_service.delivery.core.backlog import Backlog
from notification_service.delivery.settings import Step
from resequencer.clock import Instant
from resequencer.record import Headers


class JobState(StrEnum):
    ACTIVE = "ACTIVE"
    """It takes rows, or delivers them."""
    STALLED = "STALLED"
    """Its source is not read, although it was not read to the end; that of a live job never is."""
    MISSING = "MISSING"
    """A part of its source went before it was read: an operator puts it back, or accepts the loss."""
    HELD = "HELD"
    """A unit of it waits for an operator's decision."""
    COMPLETE = "COMPLETE"
    """Its source was read to the end, and all its rows have ended."""
    CANCELLED = "CANCELLED"


class Retries(msgspec.Struct, frozen=True):
    """Calls that were made again, by mode."""

    suspension: int
    verification: int
    back_off: int
    limit: int


class Job(msgspec.Struct, frozen=True):
    """`read` is what was read from the source: `duplicates` and `not_selected` made no row. `expected` is how many rows the job
    has in the end, and is None until its source was read to the end. `missing` is how many bytes of files, or offsets of a topic,
    went before they were read, and `lacks` says so for people. `accepted` are the losses that were accepted, a line for each.

    Always: processed + failed + rejected + cancelled + open = ingested.
    """

    id: str
    receiver: str
    source: str
    is_live: bool
    state: JobState
    started_at: Instant
    started_by: str
    read: int
    duplicates: int
    not_selected: int
    expected: int | None
    ingested: int
    open: int
    processed: int
    rejected: int
    failed: int
    cancelled: int
    late: int
    retries: Retries
    refused_results: int
    held_units: int
    sealed_at: Instant | None
    completed_at: Instant | None
    missing: int = 0
    lacks: str | None = None
    accepted: str = ""


class RowError(msgspec.Struct, frozen=True):
    """Why a row has failed or was rejected: `status` says which. `attempts` are the calls of the step.

    They are 0 for a row that was rejected with its unit, or that could not be called for.
    """

    row: int
    status: str
    unit: str
    notification_id: str
    position: str
    at: Instant
    step: str
    attempts: int
    error: str


class ErrorFilter(msgspec.Struct, frozen=True):
    """Chooses errors of a job: those that contain this text, in any case, and those since an instant. By default all."""

    error: str = ""
    since: Instant | None = None


class Delivery(msgspec.Struct, frozen=True):
    """What the ledger has of one notification for one receiver. `ended_at` is None until it is delivered, or never will be."""

    row: int
    receiver: str
    job: str
    unit: str
    notification_id: str
    position: str
    status: str
    attempts: int
    taken_at: Instant
    ended_at: Instant | None


class WaitingRow(msgspec.Struct, frozen=True):
    """An open row that is the first of its unit, and what it waits for."""

    row: int
    job: str
    unit: str
    notification_id: str
    status: str
    mode: str | None
    step: str
    due_at: Instant
    owner: str | None
    attempts: int
    error: str | None


class Pause(msgspec.Struct, frozen=True):
    """A receiver to which a person wants no calls, since an instant (ISO 8601, UTC), with the reason."""

    since: str
    by: str
    because: str

    @property
    def text(self) -> str:
        return f"paused since {self.since} by {self.by}: {self.because}"


class GateReport(msgspec.Struct, frozen=True):
    """`waiting` are the open rows of the receiver, `running` the calls under way. `probe_at` is None while the gate is open.

    `failed` and `retries` are of all jobs to the receiver that the ledger holds, `stalled_jobs` those of them that take nothing
    in, `missing_jobs` those that lack a part of their source. `unread_ms` is how long ago the source of the live job was read
    last; None without a live job. `pause`: a person wants no calls.
    """

    receiver: str
    is_open: bool
    reason: str
    since: Instant | None
    probe_at: Instant | None
    probes: int
    slept_ms: int
    limit: int
    running: int
    waiting: int
    held_units: int
    failed: int
    retries: Retries
    stalled_jobs: int
    missing_jobs: int
    unread_ms: int | None
    backlog: Backlog
    pause: Pause | None = None


class JobEvent(msgspec.Struct, frozen=True):
    """The end of a job. `number` counts the events of a `service` in a `ledger` without a gap, each once.

    `service` is empty in events of a version that knew no services. `run` is above 1 when the job has ended before: after
    `retry-failed`, or when rows of it were open again.
    """

    ledger: str
    number: int
    job: str
    receiver: str
    state: JobState
    run: int
    at: Instant
    expected: int
    processed: int
    rejected: int
    failed: int
    cancelled: int
    service: str = ""


class Status(StrEnum):
    """The state of a row. The last four are its ends."""

    READY = "ready"
    """It can be delivered; its receiver has no other steps."""
    READY_TO_ANNOUNCE = "ready_for_instances"
    IN_PROGRESS = "in_progress"
    """Its unit is announced, and not verified yet."""
    READY_FOR_ITEMS = "ready_for_items"
    """Its unit is announced and verified: it can be delivered."""
    RETRY = "retry"
    PROCESSED = "processed"
    REJECTED = "rejected"
    """The receiver does not want it."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        return self not in ENDS


ENDS = frozenset({Status.PROCESSED, Status.REJECTED, Status.FAILED, Status.CANCELLED})


class RetryMode(StrEnum):
    """Why a call is made again."""

    SUSPENSION = "suspension"
    VERIFICATION = "verification"
    BACK_OFF = "back-off"
    LIMIT = "limit"


class Item(msgspec.Struct, frozen=True):
    """A notification as its source has it. `dedup` identifies it within its job.

    `defect` says why it cannot be delivered: its row begins as failed.
    """

    dedup: str
    key: str
    value: bytes
    headers: Headers
    position: str
    notification_id: str | None = None
    status: str | None = None
    entity: str | None = None
    defect: str | None = None


class Tries(msgspec.Struct, frozen=True):
    """The failed calls for a row that count: attempts of any step, and questions of its verification.

    `limits` are the last answers that limited it, one after the other: they count for their waits alone.
    """

    attempts: int = 0
    questions: int = 0
    limits: int = 0


class Claim(msgspec.Struct, frozen=True):
    """A row that a delivery worker has taken on, for one call. `epoch` must be the row's when the outcome is written."""

    row: int
    epoch: int
    receiver: str
    key: str
    step: Step
    tries: Tries
    notification_id: str
    headers: Headers
    value: bytes
    job: str
