"""A unit of work as a value, and what a turn of it leads to."""

from enum import StrEnum
from typing import Any

import msgspec

from domain.clock import Instant
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.notification import Notification
from domain.record import Record
from resequencer.envelope_ids import EnvelopeIds
from resequencer.payment_data import PaymentData
from resequencer.stash import Stash, Stashed
from storage.port import UnitChange, Waits

REMEMBERED_ENVELOPES = 1_024
"""How many handled envelope ids a unit remembers: 16 KiB of state at most, written with every change. A payment has a dozen."""


class Wake(StrEnum):
    """What a unit is woken for: its head may be tried again, its deadline has come, its worker holds too much, or its last turn
    left something over.
    """

    RETRY = "retry"
    DEADLINE = "deadline"
    BOUND = "bound"
    REMAINDER = "remainder"


class Retry(msgspec.Struct, frozen=True, gc=False):
    """The head of the stash whose handling failed for a while. `attempts` were made; the next is due at `due_at`.

    `dependency` is the server that it waits for if that is why, and `calls` how many have found it unavailable: these are no
    attempts.

    `incomplete` and `is_forced` say how it came to be handled, for the next attempt to say the same; `released_to` is the
    highest offset of the release that it is part of, -1 if it is part of none. `why` is what the last attempt failed with.
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


class Remainder(msgspec.Struct, frozen=True, gc=False):
    """Where a turn that had let out its share was cut off. The next one goes on there, before anything that came since.

    `lane` is the one whose loop goes on (None: none was under way), with the marks that `incomplete` and `released_to` make;
    then the release for `cause`, or with `is_retrying` the attempt at the head, if one was under way.
    """

    lane: str | None = None
    incomplete: str | None = None
    released_to: int = -1
    cause: Wake | None = None
    is_retrying: bool = False


class Undecodable(msgspec.Struct, frozen=True):
    """A stashed record that today's configuration no longer decodes; it leaves as a dead letter at the next turn."""

    record: Record
    reason: DeadLetterReason
    error: str


class Unit(msgspec.Struct, frozen=True, gc=False):
    """All that is known of a unit of work.

    `handled` are the ids of the envelopes handled, `gathered_to` the highest offset whose data was already taken over on
    completion (-1: none). `queue` is what arrived behind a `remainder`, in order: looked at only when that is worked off.
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


class Release(msgspec.Struct, frozen=True):
    """A stash that was released though something is missing: why, what, how many, and their record.

    `is_rest` where an earlier turn began it.
    """

    unit: str
    cause: Wake
    missing: str
    envelopes: int
    waited_ms: int
    source_position: str
    is_rest: bool = False


class Tally(msgspec.Struct, frozen=True, gc=False):
    """What happened in a turn, counted. `longest_wait_ms` is the longest that anything handled in it had been stashed."""

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

    `change` is None if the storage has nothing to learn. `output` is in the order in which it must leave. `waits` tells
    when the unit wants to be woken and why, None if nothing waits. `stashed` are the offsets still in the stash that came
    in this turn, `unstashed` those that left it. `let_out` is about how many bytes leave, `data_bytes` how many the
    unit's payment data takes. `is_over` asks the actor to stop: its stash was released.
    """

    change: UnitChange | None
    output: tuple[Notification | DeadLetter, ...]
    waits: Waits | None
    releases: tuple[Release, ...]
    tally: Tally
    stashed: tuple[int, ...] = ()
    unstashed: tuple[int, ...] = ()
    let_out: int = 0
    data_bytes: int = 0

    @property
    def is_over(self) -> bool:
        return bool(self.releases) and self.waits is None
