"""A record that was read and has not ended yet."""

import msgspec

from guardian.headers import Way
from notification_service.delivery.settings import Step
from resequencer.clock import Instant
from resequencer.record import Headers, Record


class OpenRecord(msgspec.Struct, eq=False):
    """A record on its way to the receiver. It has what `Caller` sends.

    `key` is the text that stands for `{unit}` in a path. Records with the same `lane` are delivered one after the other.
    `notification_id` is sent as the idempotency key. `row` identifies the record at the gate. `due_at` is in ms of the clock that
    never goes back. `attempts` are the failed calls of this stage that count, `error` what the last call failed with, and
    `blocked_since` when the first one failed. `is_to_skip`: an operator wants it back when its call has failed.

    `limits` are the last answers that limited it, one after the other. How often the receiver had answered well is counted
    (`SharedGate.successes`): `failed_at` is that number when the last call failed; None: none did. `given_back` is how often a
    failure was held against the receiver.
    """

    record: Record
    way: Way
    key: str
    lane: bytes | int
    notification_id: str
    row: int
    due_at: int
    attempts: int = 0
    error: str | None = None
    blocked_since: Instant | None = None
    is_to_skip: bool = False
    failed_at: int | None = None
    given_back: int = 0
    limits: int = 0

    @property
    def offset(self) -> int:
        return self.record.origin.offset

    @property
    def headers(self) -> Headers:
        return self.record.headers

    @property
    def value(self) -> bytes:
        return self.record.value

    @property
    def step(self) -> Step:
        return Step.DELIVER
