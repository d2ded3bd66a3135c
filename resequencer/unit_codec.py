"""The encoding of a unit for the storage: its small state, its data, and one entry per stashed record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ConfigurationError, PermanentError, our_mistake
from resequencer.event import FIRST_FORMAT, Event, Refusal
from resequencer.handler import DataHandler
from resequencer.order import OrderUnreadable, decode_order, encode_order
from resequencer.record import Cut, Headers, Origin, Partition, Record
from resequencer.storage_port import Snapshot, StashEntry, StorageRefused
from resequencer.strategies.port import Strategy
from resequencer.unit import Entry, Hold, Ordered, Remainder, Retry, Undecodable, Unit, Wake, entry_of, unranked

FORMAT = 5
"""The newest version of the stored format. A newer version is refused.

A unit in which an order waits has format 5; one whose handler is called has format 4; one whose events are of another format
than the first has format 3, with the name of that; one with a hold, or with a deadline that an order set, has format 2; any other
has format 1.
"""

Decode = Callable[[Record], Event | Refusal]


class _StoredRetry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    offset: int
    attempts: int
    due_at: Instant
    incomplete: str | None
    is_forced: bool
    released_to: int
    dependency: str | None
    calls: int
    why: str | None
    is_ordered: bool
    is_called: bool = False
    cause: Wake | None = None
    behind: _StoredRetry | None = None


class _StoredRemainder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`queued_from` is the offset of the first queued envelope, None without any. All stash entries from there on are queued."""

    lane: str | None
    incomplete: str | None
    released_to: int
    cause: Wake | None
    is_retrying: bool
    queued_from: int | None
    is_ordered: bool


class _StoredHold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    order: bytes
    order_offset: int
    began_at: Instant
    until: Instant
    remaining_ms: int | None


class _StoredOrder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    order: bytes
    order_offset: int
    read_at: Instant
    unread_to: int
    until: Instant


class _StoredUnit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    format: int
    strategy: str
    strategy_state: msgspec.Raw
    handled: bytes
    gathered_to: int
    retry: _StoredRetry | None
    remainder: _StoredRemainder | None = None
    hold: _StoredHold | None = None
    deadline_at: Instant | None = None
    events: str = FIRST_FORMAT
    waiting_order: _StoredOrder | None = None


class _StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    stashed_at: Instant
    value: bytes | None
    key: bytes | None
    headers: Headers
    defect: str | None
    cut: Cut | None
    learned_wait_ms: int | None
    written_at: Instant | None = None


_DAMAGES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OrderUnreadable)
_encode = msgspec.msgpack.Encoder().encode
_decode_unit = msgspec.msgpack.Decoder(_StoredUnit).decode
_decode_entry = msgspec.msgpack.Decoder(_StoredEntry).decode


def encode_state(unit: Unit, strategy: Strategy, events: str = FIRST_FORMAT) -> bytes:
    """Encode the small state: all but the unit's data and the stash. The fields are in the order of `_StoredUnit`."""
    rare, is_first = unit.rare, events == FIRST_FORMAT
    if rare is None:
        if is_first:
            return _encode((1, strategy.name, unit.state, unit.handled, unit.gathered_to, None))
        return _encode((3, strategy.name, unit.state, unit.handled, unit.gathered_to, None, None, None, None, events))
    retry = None if rare.retry is None else _stored_retry(rare.retry)
    fields = (strategy.name, unit.state, unit.handled, unit.gathered_to, retry)
    remainder = None if rare.remainder is None else _stored_remainder(rare.remainder, rare.queue)
    ordered = rare.waiting_order
    if rare.hold is not None or rare.deadline_at is not None or ordered is not None or unit.is_called or not is_first:
        hold = None if rare.hold is None else _stored_hold(rare.hold)
        if ordered is not None:
            return _encode((5, *fields, remainder, hold, rare.deadline_at, events, _stored_order(ordered)))
        if unit.is_called or not is_first:
            return _encode((4 if unit.is_called else 3, *fields, remainder, hold, rare.deadline_at, events))
        return _encode((2, *fields, remainder, hold, rare.deadline_at))
    return _encode((1, *fields) if remainder is None else (1, *fields, remainder))


def _stored_retry(retry: Retry) -> tuple[Any, ...]:
    """Return the fields of `_StoredRetry`, without those of a call if there is none."""
    fields = retry.entry.offset, *_fields_of(retry)
    if not retry.is_called:
        return fields[:-2]
    return fields if retry.behind is None else (*fields, _stored_retry(retry.behind))


def _stored_remainder(remainder: Remainder, queue: tuple[Entry, ...]) -> _StoredRemainder:
    queued_from = queue[0].offset if queue else None
    how = (remainder.lane, remainder.incomplete, remainder.released_to, remainder.cause, remainder.is_retrying)
    return _StoredRemainder(*how, queued_from, remainder.is_ordered)


def _stored_hold(hold: Hold) -> _StoredHold:
    return _StoredHold(encode_order(hold.order), hold.order_offset, hold.began_at, hold.until, hold.remaining_ms)


def _stored_order(waiting: Ordered) -> tuple[Any, ...]:
    """Return the fields of `_StoredOrder`."""
    return encode_order(waiting.order), waiting.order_offset, waiting.read_at, waiting.unread_to, waiting.until


def encode_entry(stashed: Entry) -> StashEntry:
    """Encode a stashed envelope. The fields are in the order of `_StoredEntry`."""
    record = stashed.envelope.record
    fields = (record.value, record.key, record.headers, record.defect, record.cut)
    entry = (stashed.stashed_at, *fields, stashed.learned_wait_ms)
    return StashEntry(record.origin.offset, _encode(entry if record.written_at is None else (*entry, record.written_at)))


class UnitCodec(NamedTuple):
    """Restores units from their snapshots. `strategy_key` is the configuration key of the strategy, for errors.

    `events` names the format of the events.
    """

    strategy: Strategy
    decode: Decode
    data_handler: DataHandler
    strategy_key: str = "strategy"
    events: str = FIRST_FORMAT

    def restore(self, partition: Partition, snapshot: Snapshot) -> Unit:
        """Return the unit as it was committed.

        If another strategy wrote the state and nothing waits in the unit, the strategy's state is new. Data and handled
        ids are kept. If the events were of another format, the unit is new: an id of today may be equal to one of then, and
        another data handler may have stored the data. What waits is taken again, as if it had just come.

        Raises:
            StorageRefused: A newer version wrote the unit, or it is damaged, or another data handler stored its data.
            ConfigurationError: Another strategy wrote the state, and something waits in the unit.
        """
        try:
            return self._restore(partition, snapshot)
        except _DAMAGES as error:
            problem = f"its stored state is damaged ({error}); restore the storage from a backup"
            raise StorageRefused(f"unit {snapshot.unit!r}", problem) from error

    def _restore(self, partition: Partition, snapshot: Snapshot) -> Unit:
        stored = _read(snapshot)
        entries, undecodable = self._entries(partition, snapshot)
        is_as_before = stored.events == self.events
        state = self._strategy_state(snapshot, stored) if is_as_before else self.strategy.initial()
        unit = Unit(snapshot.unit, state, self.data_handler.empty)
        if undecodable:
            unit.amend(undecodable=undecodable)
        if is_as_before:
            unit.handled, unit.gathered_to = stored.handled, stored.gathered_to
            if snapshot.data:
                data = self._data(snapshot.unit, snapshot.data)
                unit.keep(data, self.data_handler.size_of(data))
            _restore_waiting(unit, entries, stored)
        else:
            if snapshot.data:
                unit.amend(has_old_data=True)
            _restore_holding(unit, stored)
            if entries:
                unit.amend(remainder=Remainder(), queue=tuple([unranked(each) for each in entries]))
        return unit

    def _data(self, unit: str, stored: bytes) -> Any:
        try:
            return self.data_handler.decode(stored)
        except (*_DAMAGES, PermanentError) as error:
            problem = f"its data are damaged or of another data handler ({error}); configure that, or restore the storage"
            raise StorageRefused(f"unit {unit!r}", f"{problem} from a backup") from error

    def _strategy_state(self, snapshot: Snapshot, stored: _StoredUnit) -> object:
        if stored.strategy == self.strategy.name:
            return msgspec.msgpack.decode(stored.strategy_state, type=self.strategy.state_type)
        if snapshot.stash:
            raise strategy_changed(self.strategy_key, stored.strategy, self.strategy.name, f"unit {snapshot.unit!r} waits")
        return self.strategy.initial()

    def _entries(self, partition: Partition, snapshot: Snapshot) -> tuple[list[Entry], tuple[Undecodable, ...]]:
        entries: list[Entry] = []
        undecodable: list[Undecodable] = []
        for each in snapshot.stash:
            stored = _decode_entry(each.body)
            origin = Origin(partition, each.offset)
            fields = (stored.value, stored.key, stored.headers, stored.defect, stored.cut, stored.written_at)
            record = Record(origin, *fields)
            entry = self._entry(snapshot.unit, record, stored)
            if isinstance(entry, Entry):
                entries.append(entry)
            else:
                undecodable.append(entry)
        return entries, tuple(undecodable)

    def _entry(self, unit: str, record: Record, stored: _StoredEntry) -> Entry | Undecodable:
        """Decode a stashed record. Any failure concerns this record alone, and would recur each time the unit is loaded."""
        try:
            envelope = self.decode(record)
            if isinstance(envelope, Refusal):
                return Undecodable(record, envelope.reason, envelope.error)
            if envelope.unit != unit:
                error = f"it waited in unit {unit!r}, and is of unit {envelope.unit!r} in the format of today; requeue it"
                return Undecodable(record, DeadLetterReason.UNDECODABLE, error)
            arrived = getattr(self.strategy, "arrived", None)
            if arrived is not None:
                envelope = arrived(envelope, stored.stashed_at)
            return entry_of(envelope, *self.strategy.rank(envelope), stored.stashed_at, stored.learned_wait_ms)
        except PermanentError as error:
            return Undecodable(record, error.reason, str(error))
        except Exception as error:  # noqa: BLE001 - A fault in our code costs the record, and not the worker at each start.
            return Undecodable(record, DeadLetterReason.HANDLER_FAILED, our_mistake(error))


def strategy_changed(key: str, stored: str, configured: str, what: str) -> ConfigurationError:
    """Return the error for a strategy, of this configuration key, that is not the one of the stored state of what waits."""
    return ConfigurationError(
        key,
        f"{configured} is configured, but {what} in a state of {stored}; run {stored} until nothing waits, then switch",
    )


def _read(snapshot: Snapshot) -> _StoredUnit:
    try:
        stored = _decode_unit(snapshot.state)
    except _DAMAGES:
        _refuse_newer(snapshot.unit, _find_format(snapshot.state))
        raise
    _refuse_newer(snapshot.unit, stored.format)
    return stored


def _refuse_newer(unit: str, version: int) -> None:
    if version > FORMAT:
        problem = f"its state has format {version}, and this version reads formats up to {FORMAT}; run the newer version"
        raise StorageRefused(f"unit {unit!r}", problem)


def _find_format(state: bytes) -> int:
    """Return the format number of an encoded state, 0 if it has none."""
    try:
        fields = msgspec.msgpack.decode(state)
    except _DAMAGES:
        return 0
    return fields[0] if isinstance(fields, list) and fields and isinstance(fields[0], int) else 0


def _restore_waiting(unit: Unit, entries: list[Entry], stored: _StoredUnit) -> None:
    """Put the entries, in order of arrival, where they were: at the head, into the queue, or into the stash."""
    retry, remainder = stored.retry, stored.remainder
    queued_from = None if remainder is None else remainder.queued_from
    for each in entries:
        if retry is not None and each.offset == retry.offset:
            unit.amend(retry=Retry(each, *_fields_of(retry)))
        elif queued_from is None or each.offset < queued_from:
            unit.add(each)
    behind = None if retry is None else retry.behind
    head = None if behind is None else next((each for each in unit.stash if each.offset == behind.offset), None)
    if unit.retry is not None and behind is not None and head is not None:
        unit.amend(retry=replace(unit.retry, behind=Retry(head, *_fields_of(behind))))
    if remainder is not None:
        queue = [each for each in entries if queued_from is not None and each.offset >= queued_from and each is not _head(unit)]
        unit.amend(remainder=_remainder(remainder), queue=tuple([unranked(each) for each in queue]))
    _restore_holding(unit, stored)


def _restore_holding(unit: Unit, stored: _StoredUnit) -> None:
    if stored.waiting_order is not None:
        unit.amend(waiting_order=_ordered(stored.waiting_order))
    if stored.hold is not None or stored.deadline_at is not None:
        unit.amend(hold=None if stored.hold is None else _hold(stored.hold), deadline_at=stored.deadline_at)


def _head(unit: Unit) -> Entry | None:
    return None if unit.retry is None else unit.retry.entry


def _remainder(stored: _StoredRemainder) -> Remainder:
    how = (stored.lane, stored.incomplete, stored.released_to, stored.cause, stored.is_retrying)
    return Remainder(*how, stored.is_ordered)


def _hold(stored: _StoredHold) -> Hold:
    return Hold(decode_order(stored.order), stored.order_offset, stored.began_at, stored.until, stored.remaining_ms)


def _ordered(stored: _StoredOrder) -> Ordered:
    return Ordered(decode_order(stored.order), stored.order_offset, stored.read_at, stored.unread_to, stored.until)


def _fields_of(retry: Retry | _StoredRetry) -> tuple[Any, ...]:
    """The fields of a retry except its envelope."""
    how = (retry.attempts, retry.due_at, retry.incomplete, retry.is_forced)
    server = (retry.released_to, retry.dependency, retry.calls, retry.why)
    return (*how, *server, retry.is_ordered, retry.is_called, retry.cause)
