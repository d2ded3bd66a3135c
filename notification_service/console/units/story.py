"""The story of a unit of work: everything that is known of it here, without payment data."""

import msgspec

from notification_service.console.orders.order_answer import ToldOrder


class Wait(msgspec.Struct, frozen=True):
    """What the unit waits for, as the storage's index has it. `kind` says what happens at `until`: a deadline or an attempt."""

    waits_for: str
    kind: str
    since: str
    until: str
    stashed: int
    stashed_bytes: int


class Holder(msgspec.Struct, frozen=True):
    """The worker that has the unit's partition, as this machine's service reports it."""

    slot: int
    process_id: int | None


class StashedEnvelope(msgspec.Struct, frozen=True):
    """An envelope that waits. `objects` are the names of the payment data that it brings, without their content.

    A record that today's configuration cannot decode has a `defect`, and becomes a dead letter at the unit's next turn.
    """

    position: str
    sequence: int | None
    flow: str
    stashed_at: str | None
    events: tuple[str, ...]
    objects: tuple[str, ...]
    record_bytes: int
    is_queued: bool = False
    defect: str | None = None


class Attempts(msgspec.Struct, frozen=True):
    """The envelope that is tried again. With a `dependency` the unit waits for that server: `calls` found it unavailable."""

    position: str
    made: int
    due_at: str
    why: str | None
    dependency: str | None
    calls: int
    incomplete: str | None


class FlowState(msgspec.Struct, frozen=True):
    """The numbers of a flow that the strategy knows. `handled_to` is lower than `counted_to` if it ends in dead letters."""

    flow: str
    counted_to: int
    handled_to: int


class DataObject(msgspec.Struct, frozen=True):
    """An object of the payment data, without its content. `kind` is `mds`, `pds` or `custom`."""

    kind: str
    name: str
    size_bytes: int


class UnitState(msgspec.Struct, frozen=True):
    """What the unit remembers. `facts` are what the strategy and the last turn say in words.

    `handled` counts the envelopes whose ids are remembered: the last 1,024 at most. `flows` is empty without sequence numbers.
    """

    strategy: str
    handled: int
    is_handled_bounded: bool
    facts: tuple[tuple[str, str], ...]
    flows: tuple[FlowState, ...]
    stash: tuple[StashedEnvelope, ...]
    attempts: Attempts | None
    payment_data: tuple[DataObject, ...]


class UnitDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter of the unit; `state` is that of the last action on it."""

    number: str
    at: str
    reason: str
    error: str
    position: str
    state: str


class DeadLetters(msgspec.Struct, frozen=True):
    """The unit's dead letters that were found. `searched` says in words what was read; if not all, `is_complete` is false."""

    found: tuple[UnitDeadLetter, ...]
    is_complete: bool
    searched: str


class LeftNotification(msgspec.Struct, frozen=True):
    """A notification that left. `marks` are those of docs/contract.md, section 6, each with its value.

    `status` has the codes of `GrpSts`, `PmtInfSts` and `TxSts` of a report in JSON, each once, in the order of the report. It is
    None if there are none, or the notification is of another target type.
    """

    notification_id: str
    event: str
    flow: str
    position: str
    marks: tuple[str, ...]
    created_at: str | None = None
    status: str | None = None


class Left(msgspec.Struct, frozen=True):
    """The unit's notifications that were found, in the order in which they left. `searched` says in words what was read."""

    found: tuple[LeftNotification, ...]
    is_complete: bool
    searched: str


class UnitOrders(msgspec.Struct, frozen=True):
    """The unit's orders that were found, the oldest first. `searched` says what was read; if not all, `is_complete` is false."""

    found: tuple[ToldOrder, ...]
    is_complete: bool
    searched: str


class Incomplete(msgspec.Struct, frozen=True):
    """How many notifications left although something was `missing`, the first of them at `at` (None if it does not say when)."""

    missing: str
    at: str | None
    notifications: int


class UnitStory(msgspec.Struct, frozen=True):
    """Everything that is known of a unit here. Instants are ISO 8601 texts in UTC.

    `partition` is where the storage has the unit, None if it has not. Then `meaning` says what that can mean. `looked_in` are the
    partitions that were searched, `problems` what could not be read, and why. If other partitions have the unit too, each has a
    story of its own, and `also_in` names them.

    `state` is None if the storage does not have the unit, or its data cannot be read.

    `hindrance` says why nothing of it is done now even if it is due: the service does not run, or its worker does not work. None
    if no reason is known. `unread` is how far its partition's log goes on beyond what its worker read: offsets on Kafka, bytes
    of files. `incomplete` is what left although something was missing, as far as what left is known.

    `orders` is None where orders are not enabled.
    """

    unit: str
    as_of: str
    partition: str | None
    looked_in: tuple[str, ...]
    dead_letters: DeadLetters
    left: Left
    wait: Wait | None = None
    holder: Holder | None = None
    state: UnitState | None = None
    also_in: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    hindrance: str | None = None
    unread: int | None = None
    incomplete: tuple[Incomplete, ...] = ()
    orders: UnitOrders | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything of the unit was found: its state, a dead letter, a notification, or an order."""
        return self.partition is not None or bool(self.dead_letters.found or self.left.found or self.told_orders)

    @property
    def told_orders(self) -> tuple[ToldOrder, ...]:
        """The orders that were found, the oldest first."""
        return () if self.orders is None else self.orders.found
