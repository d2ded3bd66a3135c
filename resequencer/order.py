"""Orders: what a person wants the owner of a partition to do with a unit or with the partition, and their outcomes.

docs/contract.md, section 12, has the records. An order is executed once; its outcome is published once.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final
from unicodedata import category, normalize

import msgspec
from msgspec.structs import asdict

from resequencer.clock import SKEW_MS, Instant, instant_of, instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable

LONGEST_BYTES: Final = 64 * 1024
"""The longest order record, in bytes."""

LONGEST_HOLD_MS: Final = 24 * 3_600_000
"""The longest hold, and the farthest deadline that `extend` may set, from the execution on."""

PROPOSAL_MS: Final = 24 * 3_600_000
"""How long a proposal may be approved. Then what the person saw is too old."""


def is_proposal_open(at: Instant, now: Instant) -> bool:
    """Whether a proposal of this instant may still be approved. One of the future is of a clock that was ahead: it may not."""
    return -SKEW_MS <= now - at <= PROPOSAL_MS


class OrderKind(StrEnum):
    """What an order wants.

    `RELEASE` releases a unit as at its deadline. `SKIP` gives up the lowest missing number. `HOLD` handles nothing of a unit for
    a time, `RESUME` ends that. `EXTEND` sets another deadline. `RETRY` makes the next attempt due now. `DEAD_LETTER` makes one
    stashed envelope a dead letter. `PAUSE` stops reading the input of a partition, `RESUME_PARTITION` ends that.
    """

    RELEASE = "release"
    SKIP = "skip"
    HOLD = "hold"
    RESUME = "resume"
    EXTEND = "extend"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    PAUSE = "pause"
    RESUME_PARTITION = "resume-partition"

    @property
    def is_of_partition(self) -> bool:
        return self in (OrderKind.PAUSE, OrderKind.RESUME_PARTITION)


class Stage(StrEnum):
    """A record of the orders log that is no order.

    A proposal waits for another person. `REJECTED` has the id of the proposal that it ends, unless an approval came first.
    """

    PROPOSED = "proposed"
    REJECTED = "rejected"


class OrderResult(StrEnum):
    """How an order ended. A hold has its outcome when it ends: `HELD_…` says how."""

    DONE = "done"
    HELD_TO_ITS_END = "held-to-its-end"
    HELD_UNTIL_RESUMED = "held-until-resumed"
    HELD_UNTIL_BOUND = "held-until-bound"
    REFUSED_CHANGED = "refused-changed"
    REFUSED_BACKLOG = "refused-backlog"
    REFUSED_WAITING = "refused-waiting"
    REFUSED_IMPOSSIBLE = "refused-impossible"
    REFUSED_NOT_APPROVED = "refused-not-approved"
    REFUSED_DECIDED = "refused-decided"
    REFUSED_UNREADABLE = "refused-unreadable"
    LOST_BY_HEAL = "lost-by-heal"

    @property
    def is_refusal(self) -> bool:
        return self.value.startswith("refused-")


class OrderUnreadable(ResequencerError):
    """A record is not an order; the text says why."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order. `id` is unique. `by` names the person, `because` says why.

    `waits_for` and `since` are what the unit waited for and since when, as the person saw it; a release and a skip are refused if
    they differ. With `despite_backlog` they wait for no unread records of the partition. `for_ms` is the length of a hold,
    `until` the new deadline of `EXTEND`, `position` the offset of the envelope that becomes a dead letter. `approved_by` is the
    second person, where one is needed. `stage` is None for an order.
    """

    id: str
    kind: OrderKind
    by: str
    because: str
    at: Instant
    unit: str | None = None
    waits_for: str | None = None
    since: Instant | None = None
    despite_backlog: bool = False
    for_ms: int | None = None
    until: Instant | None = None
    position: int | None = None
    approved_by: str | None = None
    stage: Stage | None = None

    @property
    def is_decision(self) -> bool:
        """Whether it approves or rejects a proposal of its id. Of several the first one in the log counts."""
        is_approval = self.stage is None and self.approved_by is not None and not is_same_person(self.approved_by, self.by)
        return is_approval or self.stage is Stage.REJECTED

    @property
    def decision(self) -> str:
        """`rejected by ann`, `approved by ann`: what a decision is."""
        return f"rejected by {self.by}" if self.stage is Stage.REJECTED else f"approved by {self.approved_by}"


class OrderOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the order at the offset `order_offset` of the partition's orders log. An unreadable `order` is None."""

    order: Order | None
    order_offset: int
    result: OrderResult
    text: str
    at: Instant


ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
OrderText = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Hold = Annotated[int, msgspec.Meta(gt=0, le=LONGEST_HOLD_MS)]


class _Wire(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """An order as JSON; instants are ISO 8601."""

    id: ShortText
    kind: OrderKind = msgspec.field(name="order")
    by: ShortText
    because: OrderText
    at: str
    unit: OrderText | None = None
    waits_for: str | None = None
    since: str | None = None
    despite_backlog: bool = False
    for_ms: _Hold | None = None
    until: str | None = None
    position: _Offset | None = None
    approved_by: ShortText | None = None
    stage: Stage | None = None


class _OutcomeWire(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    order: _Wire | None
    order_offset: _Offset
    result: OrderResult
    text: str
    at: str


_decode = msgspec.json.Decoder(_Wire).decode
_decode_outcome = msgspec.json.Decoder(_OutcomeWire).decode


def encode_order(order: Order) -> bytes:
    """Return the JSON of an order, on one line."""
    return msgspec.json.encode(_to_wire(order))


def decode_order(value: bytes) -> Order:
    """Return the order of a record.

    Raises:
        OrderUnreadable: The record is not an order, or lacks what its kind needs.
    """
    if len(value) > LONGEST_BYTES:
        raise OrderUnreadable(f"it has {len(value)} bytes; an order has {LONGEST_BYTES} at most")
    try:
        order = _from_wire(_decode(value))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise OrderUnreadable(printable(str(error))) from error
    missing = find_missing(order)
    if missing is not None:
        raise OrderUnreadable(f"{order.kind.value} needs {missing}")
    return order


def find_missing(order: Order) -> str | None:
    """Return the field that the order's kind needs and that is not there, None if there is nothing missing."""
    needed: dict[OrderKind, tuple[str, ...]] = {
        OrderKind.RELEASE: ("waits_for", "since"),
        OrderKind.SKIP: ("waits_for", "since"),
        OrderKind.HOLD: ("for_ms",),
        OrderKind.EXTEND: ("until",),
        OrderKind.DEAD_LETTER: ("position",),
    }
    fields = (*(() if order.kind.is_of_partition else ("unit",)), *needed.get(order.kind, ()))
    absent = next((each for each in fields if getattr(order, each) is None), None)
    return None if absent is None else absent.replace("_", "-")


def encode_outcome(outcome: OrderOutcome) -> bytes:
    """Return the JSON of an outcome, on one line."""
    order = None if outcome.order is None else _to_wire(outcome.order)
    return msgspec.json.encode(
        _OutcomeWire(
            order=order,
            order_offset=outcome.order_offset,
            result=outcome.result,
            text=outcome.text,
            at=instant_text(outcome.at),
        )
    )


def decode_outcome(value: bytes) -> OrderOutcome:
    """Return the outcome of a record.

    Raises:
        OrderUnreadable: The record is not an outcome.
    """
    try:
        wire = _decode_outcome(value)
        order = None if wire.order is None else _from_wire(wire.order)
        return OrderOutcome(
            order=order, order_offset=wire.order_offset, result=wire.result, text=wire.text, at=instant_of(wire.at)
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise OrderUnreadable(printable(str(error))) from error


def _to_wire(order: Order) -> _Wire:
    return _Wire(**_with_instants(order, instant_text))


def _from_wire(wire: _Wire) -> Order:
    return Order(**_with_instants(wire, instant_of))


def _with_instants(source: Order | _Wire, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the fields, with the instants among them converted."""
    fields = asdict(source)
    return fields | {name: convert(fields[name]) for name in ("at", "since", "until") if fields[name] is not None}


def is_same_person(one: str, other: str) -> bool:
    """Whether two names differ at most in case, in the form of letters, in unseen characters and in space around.

    But for the space this is Unicode's caseless matching of identifiers (toNFKC_Casefold of The Unicode Standard). A
    directory or a proxy may write the name of a person as `anna` today and as `Anna` tomorrow.
    """
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    seen = "".join(each for each in normalize("NFKC", name) if category(each) != "Cf")
    return normalize("NFKC", seen.casefold()).strip()
