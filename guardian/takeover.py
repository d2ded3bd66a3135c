"""The plan of a takeover: where to read on, what is still to publish, and whether the storage has lost commits. Pure.

The steps are those of docs/decisions/0004-exactly-once.md.

Also the initial state of a partition: nothing is read, and no unit is known (docs/decisions/0062-the-initial-state.md). It is
pure but for the calls of a store. One commit begins it: the header goes back to the beginning of the log, and says that the units
go. From then on whoever takes the partition over ends it before it reads anything: it removes the units, in many steps,
and a last commit says that they are gone. Each step may be repeated.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from guardian.backoff import BackoffSettings
from guardian.partition_orders import PartitionOrders
from guardian.pending_output import outcome_record, to_pending
from guardian.ports import Position, TransportStatus
from guardian.positions import DoneOffsets, decode
from resequencer.clock import Instant
from resequencer.event import FIRST_FORMAT
from resequencer.order import OrderOutcome
from resequencer.printable import counted
from resequencer.record import Partition
from resequencer.storage_port import Commit, Header, PartitionStore, Pending, UnitChange

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The range of a signed 64-bit integer, as databases have it."""


class Metadata(msgspec.Struct, frozen=True, array_like=True):
    """The metadata of a position: token and number of the storage commit it stands on, and the highest number published.

    Where the source is the store, `done` encodes the done offsets beyond the position (guardian/positions.py), and `position`
    is the offset for which `done` was written, None if nothing is done beyond it.

    `source_state` is what the source has to remember, where the storage forgets it with the process; maybe of a later offset.
    """

    token: str
    commit: _Count
    published: _Count
    done: str = ""
    position: _Count | None = None
    source_state: str = ""

    def encode(self) -> str:
        fields = msgspec.structs.astuple(self)
        return msgspec.json.encode(fields if self.source_state else fields[:-1]).decode()


class Takeover(msgspec.Struct, frozen=True):
    """How to continue with a partition.

    `offset` is where to read on. `highest_number` is the last number used. `pending` must still be published. `is_new`: nothing
    was ever read.

    `must_heal`: the storage has lost commits, or the group was reset. Output of records below `heal_offset` may repeat, `pending`
    gets new numbers, and both are committed before anything is published. `has_expired`: the position is missing. Brokers delete
    the position of a group that is inactive for long; an operator does not.

    `must_mark`: it is unknown which of `pending` a sink of the region has, because it has no marker. The storage has lost
    nothing. `pending` is all that the storage has; it gets new numbers and the mark, and is committed before anything leaves.

    `gone` spans the offsets that are not done and that the log no longer has, because it begins behind them. Records that are in
    `done` cause no output again.

    `orders` is what is known of the partition's orders, `lost_orders` the outcomes of those that the storage has lost.
    `source_state` is for the source's `seek`.
    """

    offset: int
    highest_number: int
    heal_offset: int
    pending: tuple[Pending, ...] = ()
    is_new: bool = False
    must_heal: bool = False
    must_mark: bool = False
    has_expired: bool = False
    gone: range = range(0)
    done: DoneOffsets | None = None
    orders: PartitionOrders = PartitionOrders()
    lost_orders: tuple[OrderOutcome, ...] = ()
    source_state: str = ""


def plan_takeover(
    header: Header,
    pending: Sequence[Pending],
    position: Position | None,
    log: range,
    *,
    is_durable: bool,
    standing: TransportStatus = TransportStatus(),  # noqa: B008 - frozen.
) -> Takeover:
    """Compare the storage with what was published. `log` runs from the first offset in the log to its end.

    A storage that is not durable loses its content with the process, by design. Its partition continues from the position, and
    nothing is healed. If the transport remembers no positions (`standing`), the storage alone says where to continue, and all
    that is pending is published once more.
    """
    if not standing.remembers and not header.is_empty:
        assert header.next_offset is not None
        state = header.source_state
        return Takeover(header.next_offset, header.highest_number, header.heal_offset, tuple(pending), source_state=state)
    metadata = None if is_durable or position is None else find_metadata(position.metadata)
    state = header.source_state if metadata is None else metadata.source_state
    plan = replace(_plan(header, pending, position, log, is_durable=is_durable), source_state=state)
    if standing.window:
        return _without_replay(plan, header, position, standing.window) if plan.must_heal else plan
    if plan.offset >= log.start:
        return plan
    undone = (plan.done or DoneOffsets(plan.offset)).undone_before(log.start)
    return replace(plan, offset=log.start, gone=range(undone[0].start, undone[-1].stop) if undone else range(0))


def _plan(header: Header, pending: Sequence[Pending], position: Position | None, log: range, *, is_durable: bool) -> Takeover:
    metadata = find_metadata(position.metadata) if position is not None else None
    beyond = position.beyond if position is not None else frozenset[int]()
    published = metadata.published if metadata is not None else 0
    highest_published = max(published, *beyond, position.highest if position is not None else 0)
    highest, is_ahead = max(header.highest_number, highest_published), highest_published > published
    is_whole = position is None or position.is_whole
    # A sink without a marker may be behind the position: all that is pending must leave.
    remaining = tuple(each for each in pending if not is_whole or (each.number > published and each.number not in beyond))
    if position is None and header.is_empty:
        return Takeover(log.start, highest, 0, is_new=True)
    if position is not None and metadata is not None and _is_known(metadata, header, highest_published):
        offset = header.next_offset if header.next_offset is not None else position.offset
        return Takeover(offset, highest, header.heal_offset, remaining, must_mark=bool(remaining) and not is_whole)
    if not is_durable:
        done = decode(position.offset, metadata.done) if position is not None and metadata is not None else None
        return Takeover(position.offset if position else log.start, highest, 0, done=done)
    # Output published beyond the position was caused by records beyond the position, and it is unknown by which.
    reached = position.offset if position is not None and metadata is not None and not is_ahead else log.stop
    heal_offset = max(header.heal_offset, reached)
    offset = header.next_offset if header.next_offset is not None else log.start
    # The position stands on a commit that is gone. Its numbers may be of other output than those of the storage that came back:
    # an owner of before may have continued there. A position without metadata names no commit; what is then known to be published
    # is what a file has behind it, and a file has one writer alone.
    to_publish = remaining if position is None or metadata is None else tuple(pending)
    return Takeover(offset, highest, heal_offset, to_publish, must_heal=True, has_expired=position is None)


def _without_replay(plan: Takeover, header: Header, position: Position | None, window: int) -> Takeover:
    """Return the plan to heal a storage whose source cannot be read again.

    What was acknowledged is gone. What was not comes again, and gets new offsets. At most a window of it may have been handled,
    so the next window of records is marked. No offset is used twice: a sink is ahead of the position by one cycle at most, and a
    cycle takes at most a window.
    """
    offset = max(header.next_offset or 0, position.offset if position is not None else 0) + window
    return replace(plan, offset=offset, heal_offset=max(plan.heal_offset, offset + window))


def find_metadata(text: str) -> Metadata | None:
    """Decode the metadata of a position; None if another program wrote it."""
    try:
        return msgspec.json.decode(text, type=Metadata)
    except (msgspec.DecodeError, RecursionError):
        return None


_EVENTS = "events="
_MAPPING = "\t"
_UNMAPPED = "not mapped"


class Log(NamedTuple):
    """What a header keeps of its log: its name, the format of its events, and what that maps, as the field of the settings."""

    source: str
    events: str
    mapping: str = ""


def named_source(source: str, events: str, mapping: str = "") -> str:
    """Return what a header keeps of its log as text: its name alone, if the events are of the first format.

    A name that looks as if it began with a format gets its own in front. No format has white space in its name or mapping.
    """
    is_plain = events == FIRST_FORMAT and not source.startswith(_EVENTS)
    return source if is_plain else f"{_EVENTS}{events}{mapping and _MAPPING + mapping} {source}"


def source_of(header: Header) -> Log:
    """Return what the header keeps of its log."""
    if not header.source.startswith(_EVENTS):
        return Log(header.source, FIRST_FORMAT)
    read, _, source = header.source.removeprefix(_EVENTS).partition(" ")
    events, _, mapping = read.partition(_MAPPING)
    return Log(source, events, mapping)


def changed_places(before: str, now: str) -> str:
    """Return what another mapping maps elsewhere, for errors; empty if one of the two is not known."""
    old, new = (dict(parse_qsl(each)) for each in (before, now))
    places = [(each, old.get(each, _UNMAPPED), new.get(each, _UNMAPPED)) for each in (old | new if old and new else ())]
    changed = "; ".join(f"{name} was {was}, is {now} now" for name, was, now in places if was != now)
    return changed and f" ({changed})"


def last_commit(header: Header) -> tuple[str, int]:
    """The token and number of the storage's last commit. It is an earlier owner's if the present owner made none.

    A position names this commit, because the history keeps tokens with commits longer than tokens without. So a worker that
    exits again and again before its first commit does not look like a storage that lost commits.
    """
    owners = (*header.history, (header.token, header.commit))
    return next((each for each in reversed(owners) if each[1]), (header.token, 0))


def _is_known(metadata: Metadata, header: Header, highest_published: int) -> bool:
    """Whether the storage has the commit that the position stands on, or a later one under the same token.

    Commit 0 is the empty storage, which precedes every commit. `highest_published` counts numbers beyond the position,
    too. A number is given out by a commit: a storage that has not given it out has lost that commit.
    """
    if highest_published > header.highest_number:
        return False
    if not metadata.commit:
        return True
    known = dict(header.history) | {header.token: header.commit}
    return metadata.commit <= known.get(metadata.token, -1)


class Untaken(NamedTuple):
    """Why a partition is not taken over: `what` (`storage` or `output`) is unavailable. The next try is at `next_at`.

    With `is_refused` it answers, and refuses this worker.
    """

    what: str
    reason: str
    next_at: Instant
    pause_ms: int
    is_refused: bool = False


class TakeoverBackoff:
    """Put takeovers off, each for twice as long as the last time. Other partitions are served meanwhile."""

    def __init__(self, settings: BackoffSettings) -> None:
        self._settings = settings
        self.untaken: dict[Partition, Untaken] = {}

    @property
    def next_at(self) -> Instant | None:
        """When the next takeover is due, None if none is postponed."""
        return min((each.next_at for each in self.untaken.values()), default=None)

    @property
    def refused(self) -> Untaken | None:
        """A takeover that a server refused although it answers, None if there is none."""
        return next((each for each in self.untaken.values() if each.is_refused), None)

    def is_due(self, partition: Partition, now: Instant) -> bool:
        """Whether a takeover may be tried now. A clock that was set back does not prolong the pause."""
        known = self.untaken.get(partition)
        return known is None or not 0 < known.next_at - now <= known.pause_ms

    def postpone(self, partition: Partition, what: str, reason: str, now: Instant, *, is_refused: bool = False) -> bool:
        """Put a takeover off, and return whether this is the first failure since the partition was last owned."""
        known = self.untaken.get(partition)
        pause_ms = min(2 * known.pause_ms, self._settings.longest_pause_ms) if known else self._settings.first_pause_ms
        self.untaken[partition] = Untaken(what, reason, now + pause_ms, pause_ms, is_refused)
        return known is None

    def forget(self, partition: Partition) -> None:
        """Forget a partition that was taken over or is no longer assigned."""
        self.untaken.pop(partition, None)


# The initial state

_AT_ONCE = 500
"""How many units one read or commit has."""


class InitialPlan(NamedTuple):
    """What the initial state means for a partition: it is read again from `start` on, and was read up to `read_to`.

    `units` wait, with so many `envelopes`; all of these come again from the log. `gone` are envelopes that wait and that the log
    does not have any more: they would be lost.
    """

    partition: Partition
    start: int
    read_to: int
    units: int
    envelopes: int
    gone: int

    @property
    def refusal(self) -> str | None:
        """Why this partition may not be reset, and what to do; None if it may."""
        if self.start > self.read_to:
            return f"{self.partition}: the log begins at offset {self.start}, and records from {self.read_to} on were never read"
        if self.gone:
            return (
                f"{self.partition}: {counted(self.gone, 'envelope')} that wait are not in the log any more, and would be lost. "
                "Release their units, or wait for their deadlines"
            )
        return None

    def __str__(self) -> str:
        waits = f"{counted(self.units, 'waiting unit')} with {counted(self.envelopes, 'envelope')}"
        text = f"{self.partition} again from offset {self.start} to {self.read_to} ({waits})"
        return f"{text}; what came before offset {self.start} is gone and does not come again" if self.start else text


def plan_initial_state(partition: Partition, store: PartitionStore, start: int, read_to: int) -> InitialPlan:
    """Look at what waits. `start` is where the log begins. Raises: as `PartitionStore.load`."""
    waiting = store.waiting()
    gone = 0
    for units in _chunks([unit for unit, _ in waiting]) if start else ():
        gone += sum(entry.offset < start for each in store.load(units).values() for entry in each.stash)
    return InitialPlan(partition, start, read_to, len(waiting), sum(waits.stashed for _, waits in waiting), gone)


def begin_initial_state(header: Header, start: int, attempt: str) -> Commit:
    """Return the commit that begins: it is the point of no return.

    Numbers continue, so that no sink passes over what comes again. All that comes of records below what was read is marked.
    Nothing may be pending.
    """
    orders, heal_offset = PartitionOrders.decode(header.orders), max(header.heal_offset, header.next_offset or 0)
    return replace(
        _unchanged(header, attempt), next_offset=start, heal_offset=heal_offset, orders=_said(orders, is_being_reset=True)
    )


def is_unfinished(header: Header) -> bool:
    """Whether the units of this partition are to be removed before it is read."""
    return PartitionOrders.decode(header.orders).is_being_reset


def end_initial_state(
    partition: Partition, store: PartitionStore, token: Callable[[], str], lost: Sequence[OrderOutcome] = ()
) -> None:
    """Remove all units, and then say that they are gone. `lost` are the outcomes of orders that end with their units.

    An idle unit goes as one that has expired, so those that wait are made idle first.

    Raises: as `PartitionStore.commit`.
    """
    for units in _chunks([unit for unit, _ in store.waiting()]):
        changes = tuple(
            UnitChange(unit, each.state, stash_removed=tuple(entry.offset for entry in each.stash))
            for unit, each in store.load(units).items()
        )
        store.commit(replace(_unchanged(store.header, token()), changes=changes))
    while store.expire(store.header.caught_up_ms, ()):
        pass
    header = store.header
    orders, first = PartitionOrders.decode(header.orders), header.highest_number + 1
    added: tuple[Pending, ...] = tuple(
        to_pending(outcome_record(number, each, partition, orders.heal_offset)) for number, each in enumerate(lost, first)
    )
    # Units that begin again are younger by the caught-up clock than those that are gone.
    ends = replace(_unchanged(header, token()), caught_up_ms=header.caught_up_ms + 1, orders=_said(orders, is_being_reset=False))
    store.commit(replace(ends, added=added, highest_number=header.highest_number + len(added)))


def _unchanged(header: Header, attempt: str) -> Commit:
    """A commit that changes nothing."""
    assert header.next_offset is not None, "a partition without a commit is in its initial state"
    return Commit(
        header.commit + 1,
        attempt,
        header.next_offset,
        header.highest_number,
        header.heal_offset,
        source=header.source,
        caught_up_ms=header.caught_up_ms,
        orders=header.orders,
    )


def _said(orders: PartitionOrders, *, is_being_reset: bool) -> str:
    return replace(orders, is_being_reset=is_being_reset).encode()


def _chunks(units: Sequence[str]) -> Sequence[Sequence[str]]:
    return [units[at : at + _AT_ONCE] for at in range(0, len(units), _AT_ONCE)]
