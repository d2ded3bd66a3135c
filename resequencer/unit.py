"""A unit of work as a value, and the decision of its turn."""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from domain.clock import Instant
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.fact import Fact
from domain.notification import Notification
from domain.order import Order, OrderOutcome
from domain.record import Record
from resequencer.envelope_ids import EnvelopeIds
from resequencer.payment_data import PaymentData
from resequencer.stash import Stash, Stashed
from storage.port import UnitChange, Waits

REMEMBERED_ENVELOPES = 1_024
"""How many handled envelope ids a unit remembers: at most 16 KiB of state, written with every change. A payment has about 12."""


Output: TypeAlias = Notification | DeadLetter | OrderOutcome | Fact
"""What a turn lets out, in the order of publication."""


class Wake(StrEnum):
    """Why a unit is woken: the retry of its head is due, its deadline has come, its worker exceeds the memory bound, its last
    turn left a remainder, or its hold is over.

    `ORDER` is not a wake, but the cause of a release by an operator's order.
    """

    RETRY = "retry"
    DEADLINE = "deadline"
    BOUND = "bound"
    REMAINDER = "remainder"
    HOLD_OVER = "hold-over"
    ORDER = "order"


class Retry(msgspec.Struct, frozen=True, gc=False):
    """The head of the stash, under retry. `attempts` were made; the next is due at `due_at`.

    If the head waits for an unavailable server, `dependency` is its name, and `calls` counts the calls that found it unavailable.
    These calls are not attempts.

    `incomplete` and `is_forced` are the marks for the next attempt. `released_to` is the highest offset of the release that the
    head is part of, -1 without a release; with `is_ordered` it is a release by an order. `why` is the error of the last attempt.
    """

    entry: Stashed
    attempts: int
    due_at: Instant
    incomplete: str | None = None
    is_forced: bool = False
    released_to: int = -1
    dependency: str | None = None
    calls: int = 0
    why: str | None = None
    is_ordered: bool = False


class Remainder(msgspec.Struct, frozen=True, gc=False):
    """Where a turn whose share was used up was cut off. The next turn continues there, before later arrivals.

    `lane` is the lane whose loop continues (None for no loop), with the marks from `incomplete` and `released_to`. If a release
    was running, `cause` is its cause and it continues afterwards. With `is_retrying` it continues with the head under retry.
    With `is_ordered` the marks are those of an order.
    """

    lane: str | None = None
    incomplete: str | None = None
    released_to: int = -1
    cause: Wake | None = None
    is_retrying: bool = False
    is_ordered: bool = False


class Hold(msgspec.Struct, frozen=True, gc=False):
    """A hold: until its end nothing of the unit is handled, and what arrives is stashed.

    `order` is the order that began it, at `order_offset` of the orders log; its outcome is published when the hold ends.
    `left_ms` is the time that was left until the unit's deadline, None if nothing waited for a deadline.
    """

    order: Order
    order_offset: int
    began_at: Instant
    until: Instant
    left_ms: int | None = None


class Ordered(msgspec.Struct, frozen=True, gc=False):
    """An order for a unit, from the offset `order_offset` of its partition's orders log.

    With `has_backlog` the partition has unread records, among which missing envelopes may be.
    """

    order: Order
    order_offset: int
    has_backlog: bool = False


class Undecodable(msgspec.Struct, frozen=True):
    """A stashed record that today's configuration no longer decodes. The next turn makes it a dead letter."""

    record: Record
    reason: DeadLetterReason
    error: str


class Unit(msgspec.Struct, frozen=True, gc=False):
    """The whole state of a unit of work.

    `handled` has the ids of the handled envelopes. `gathered_to` is the highest offset whose data was gathered on completion
    (-1: none). `queue` has the envelopes that arrived behind a `remainder`, in order. They are taken only when the remainder is
    worked off. `hold` is the operator's hold. `deadline_at` is the deadline that an order set, for what is stashed now.
    """

    unit: str
    strategy_state: Any
    stash: Stash = Stash()
    data: PaymentData = PaymentData()
    handled: EnvelopeIds = EnvelopeIds()
    retry: Retry | None = None
    gathered_to: int = -1
    undecodable: tuple[Undecodable, ...] = ()
    remainder: Remainder | None = None
    queue: Stash = Stash()
    hold: Hold | None = None
    deadline_at: Instant | None = None


class Release(msgspec.Struct, frozen=True):
    """The release of a stash although something is missing: the cause, what is missing, and how many envelopes.

    `waited_ms` and `source_position` are those of the oldest envelope. `is_rest` is set if an earlier turn began the release.
    """

    unit: str
    cause: Wake
    missing: str
    envelopes: int
    waited_ms: int
    source_position: str
    is_rest: bool = False


class Tally(msgspec.Struct, frozen=True, gc=False):
    """Counts of what happened in a turn. `longest_wait_ms` is the longest wait of an envelope that left the stash in it."""

    arrived: int = 0
    handled: int = 0
    stashed: int = 0
    duplicates: int = 0
    late: int = 0
    incomplete: int = 0
    retries: int = 0
    unmatched: int = 0
    suppressed: int = 0
    longest_wait_ms: int = 0


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is to be done after a turn.

    `change` is None if there is nothing to store. `output` is in the order of publication. `waits` is when and why the unit must
    be woken, None if nothing waits. `stashed` has the offsets that arrived in this turn and are still in the stash. `unstashed`
    has the offsets that left it, and `waited_ms` how long the storage had each of them in the stash. `written_at` has the
    timestamps of the handled records that have one. `let_out` is about the bytes of the output, `data_bytes` the bytes of the
    payment data. `is_over` is set if the stash was released and nothing waits: the actor can stop.
    """

    change: UnitChange | None
    output: tuple[Output, ...]
    waits: Waits | None
    releases: tuple[Release, ...]
    tally: Tally
    stashed: tuple[int, ...] = ()
    unstashed: tuple[int, ...] = ()
    let_out: int = 0
    data_bytes: int = 0
    waited_ms: tuple[int, ...] = ()
    written_at: tuple[Instant, ...] = ()

    @property
    def is_over(self) -> bool:
        return bool(self.releases) and self.waits is None
