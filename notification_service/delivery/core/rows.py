"""The rows of the ledger: one per notification and receiver (docs/delivery.md shows the life of one)."""

from enum import StrEnum

import msgspec

from notification_service.delivery.settings import Step
from resequencer.record import Headers


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
