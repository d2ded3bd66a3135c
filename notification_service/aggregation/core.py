"""What a command changes in the value of a key. Pure."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from guardian.headers import MEMBER
from guardian.pending_output import output_record
from guardian.ports import Channel, OutputRecord
from notification_service.events.identifiers import find_id_flaw
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import PermanentError, TooLarge
from resequencer.record import NO_VALUE, Headers, Origin, Record


class Command(msgspec.Struct, frozen=True, gc=False):
    """A command for the value of `key`, or for that of one of its members. `origin` is its place among the commands."""

    key: str
    member: str | None
    body: bytes
    origin: Origin


class CommandRefused(msgspec.Struct, frozen=True):
    """Why a record is no command. It becomes a dead letter."""

    reason: DeadLetterReason
    problem: str


def read_command(record: Record) -> Command | CommandRefused:
    """Return the command of a record: its key is the record's, its member the header `member`. Both are valid ids."""
    if record.defect is not None or record.value is None:
        return CommandRefused(DeadLetterReason.UNDECODABLE, record.defect or NO_VALUE)
    if record.cut is not None:
        return CommandRefused(DeadLetterReason.TOO_LARGE, f"a command of {record.cut.length} bytes is too large")
    header = next((value for name, value in reversed(record.headers) if name == MEMBER), None)
    try:
        key, member = (record.key or b"").decode(), None if header is None else header.decode()
    except UnicodeDecodeError:
        return CommandRefused(DeadLetterReason.INVALID_ID, "the key or the member is not UTF-8")
    if (flaw := find_id_flaw(key)) is not None:
        return CommandRefused(DeadLetterReason.INVALID_ID, f"the key {flaw}")
    if member is not None and (flaw := find_id_flaw(member)) is not None:
        return CommandRefused(DeadLetterReason.INVALID_ID, f"the member {flaw}")
    return Command(key, member, record.value, record.origin)


class Change(msgspec.Struct, frozen=True, gc=False):
    """The values after a command: that of the key, called the head, and that of the command's member. None: there is none.

    From the instant `due` on `on_due` is called. With `forgets_members` the values of all members of the key are deleted, too.
    """

    head: bytes | None
    member: bytes | None = None
    due: Instant | None = None
    forgets_members: bool = False


class Completion(msgspec.Struct, frozen=True, gc=False):
    """A record that leaves with the change that it follows from: in one transaction."""

    key: bytes | None
    headers: Headers
    value: bytes


class Aggregate(Protocol):
    """Pure: the same values and the same command always give the same change.

    Nothing that a method does besides its answer is undone when the transaction is aborted, and it is called again then.
    """

    def apply(self, head: bytes | None, member: bytes | None, command: Command, now: Instant) -> Change:
        """Return the values after the command. The head has the `due` that the change says, whatever it had before.

        Raises:
            PermanentError: The command can never be applied. It becomes a dead letter, and changes nothing.
        """
        ...

    def on_due(self, key: str, head: bytes, now: Instant, counts_from: Instant | None) -> Change:
        """Return the head at an instant that was due. All commands that were there by then have been applied.

        The time after which something ends or is deleted counts from `counts_from` on at the earliest: a head for which it is not
        over is due later. None: the clock is not trusted; nothing may end or be deleted by it, and the head stays due.

        Raises:
            PermanentError: It can never be done. That is logged; the head stays as it is, and is not due any more.
        """
        ...

    def dated_back(self, head: bytes, now: Instant) -> Change | None:
        """Return a head that has instants of a clock that was ahead as if they were now; None: it has none."""
        ...

    def on_value(self, key: str, old: bytes | None, new: bytes | None, now: Instant) -> Sequence[Completion]:
        """Return what follows from a change of the head. It is called once for each command or instant that changed it.

        Raises:
            PermanentError: What follows cannot be made; the command becomes a dead letter, and changes nothing.
        """
        ...


MAX_VALUE_BYTES = 512 * 1024
"""The largest value of a key or a member. Topics accept 1 MiB by default."""

_FORGOTTEN_AT_ONCE = 2_000
"""How many members one turn deletes. A key with more is deleted in several turns, one transaction each."""
_DUE_AT_ONCE, _DUE_MEANWHILE = 500, 10_000
"""How many keys one turn looks at, and while those stay due that would end: others are behind them."""

_LOG = logging.getLogger("resequencer.aggregation")


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A value, and when its key is due; None: never. Members are never due."""

    body: bytes
    due: Instant | None = None


class Slot(NamedTuple):
    """Where a value is: the head of a key (`member` is empty), or one of its members."""

    key: str
    member: str = ""


class Values(Protocol):
    """The values of a partition as they are after the last transaction."""

    def find_all(self, slots: Collection[Slot]) -> Mapping[Slot, Stored]:
        """Return the values of those slots that have one."""
        ...

    def due(self, until: Instant, limit: int) -> Sequence[str]:
        """Return the keys that are due at `until`, those that are due longest first."""
        ...

    def keys(self, after: str, limit: int) -> Sequence[str]:
        """Return keys behind `after`, in order; fewer than `limit`: there are no more."""
        ...

    def members(self, key: str, limit: int) -> Sequence[str]:
        """Return members of a key that have a value, in the order of their names."""
        ...


class Turn(msgspec.Struct, frozen=True):
    """What a turn changes (None: the value is deleted), and the records that leave with it, in order."""

    changes: Mapping[Slot, Stored | None]
    output: Sequence[Completion | DeadLetter]
    applied: int = 0
    """How many commands were applied."""

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.output


class Processor:
    """Applies commands one after the other. Its answer depends on nothing but what is handed in."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate

    def apply(self, values: Values, records: Sequence[Record], now: Instant) -> Turn:
        """Return what the records change, in their order. What is no command becomes a dead letter."""
        commands = [read_command(each) for each in records]
        draft = _Draft(values.find_all(_slots_of(commands)))
        for record, command in zip(records, commands, strict=True):
            if isinstance(command, CommandRefused):
                draft.output.append(DeadLetter(record, command.reason, command.problem, now))
            else:
                self._apply(draft, command, record, now)
        return draft.turn()

    def wake(self, values: Values, until: Instant, now: Instant, counts_from: Instant | None = 0) -> Turn:
        """Return what follows from instants up to `until`. Only for values to which all commands of that time were applied.

        `counts_from` is as of `Aggregate.on_due`.
        """
        due = values.due(until, _DUE_MEANWHILE if counts_from is None else _DUE_AT_ONCE)
        draft = _Draft(values.find_all([Slot(key) for key in due]))
        for key in due:
            head = draft.find(Slot(key))
            if head is not None:
                self._wake(draft, values, key, head.body, now, counts_from)
            if len(draft.changes) >= _FORGOTTEN_AT_ONCE:
                break
        return draft.turn()

    def date_back(self, values: Values, after: str, now: Instant) -> tuple[Turn, str | None]:
        """Look at some keys behind `after` for instants of a clock that was ahead. Return the turn, and the last key.

        The key is None if there are no more. Only by a clock that is trusted.
        """
        keys = values.keys(after, _DUE_AT_ONCE)
        draft = _Draft(values.find_all([Slot(key) for key in keys]))
        for key in keys:
            head = draft.find(Slot(key))
            change = None if head is None else self._aggregate.dated_back(head.body, now)
            if change is not None:
                draft.put(Slot(key), _stored(change.head, change.due))
        return draft.turn(), keys[-1] if len(keys) == _DUE_AT_ONCE else None

    def _apply(self, draft: "_Draft", command: Command, record: Record, now: Instant) -> None:
        slot = Slot(command.key)
        head = draft.find(slot)
        member_slot = None if command.member is None else Slot(command.key, command.member)
        member = None if member_slot is None else draft.find(member_slot)
        try:
            change = self._aggregate.apply(_body(head), _body(member), command, now)
            _check_sizes(change)
            output = self._follow(command.key, _body(head), change, now)
        except PermanentError as error:
            draft.output.append(DeadLetter(record, error.reason, str(error), now))
            return
        draft.applied += 1
        draft.put(slot, _stored(change.head, change.due))
        if member_slot is not None:
            draft.put(member_slot, _stored(change.member))
        draft.output += output

    def _wake(self, draft: "_Draft", values: Values, key: str, head: bytes, now: Instant, counts_from: Instant | None) -> None:
        try:
            change = self._aggregate.on_due(key, head, now, counts_from)
            _check_sizes(change)
            output = self._follow(key, head, change, now)
        except PermanentError as error:
            # It would be the same at each turn, and no command is to blame that could be dead-lettered.
            _LOG.error("what was due for %r cannot be done, and is given up: %s", key, error)
            draft.put(Slot(key), _stored(head))
            return
        if change.forgets_members:
            members = values.members(key, _FORGOTTEN_AT_ONCE)
            draft.changes.update((Slot(key, member), None) for member in members)
            if len(members) == _FORGOTTEN_AT_ONCE:
                return  # The head stays due, so the next turn continues.
        draft.put(Slot(key), _stored(change.head, change.due))
        draft.output += output

    def _follow(self, key: str, head: bytes | None, change: Change, now: Instant) -> Sequence[Completion]:
        return () if change.head == head else self._aggregate.on_value(key, head, change.head, now)


class _Draft:
    """The values as a turn leaves them so far. `before` has those that the turn may change, but for members to be deleted."""

    def __init__(self, before: Mapping[Slot, Stored]) -> None:
        self.changes: dict[Slot, Stored | None] = {}
        self.output: list[Completion | DeadLetter] = []
        self.applied = 0
        self._before = before

    def find(self, slot: Slot) -> Stored | None:
        return self.changes[slot] if slot in self.changes else self._before.get(slot)

    def put(self, slot: Slot, stored: Stored | None) -> None:
        """Note a value. What is as it was before the turn is no change, and is not written."""
        if self._before.get(slot) == stored:
            self.changes.pop(slot, None)
        else:
            self.changes[slot] = stored

    def turn(self) -> Turn:
        return Turn(self.changes, self.output, self.applied)


def _slots_of(commands: Sequence[Command | CommandRefused]) -> Collection[Slot]:
    found: set[Slot] = set()
    for each in commands:
        if isinstance(each, Command):
            found.add(Slot(each.key))
            if each.member is not None:
                found.add(Slot(each.key, each.member))
    return found


def _body(stored: Stored | None) -> bytes | None:
    return None if stored is None else stored.body


def _stored(body: bytes | None, due: Instant | None = None) -> Stored | None:
    return None if body is None else Stored(body, due)


def _check_sizes(change: Change) -> None:
    largest = max(len(change.head or b""), len(change.member or b""))
    if largest > MAX_VALUE_BYTES:
        raise TooLarge(f"the value would have {largest} bytes, {MAX_VALUE_BYTES} are allowed")
    if change.head == b"" or change.member == b"":
        raise PermanentError("the value would be empty; return None to delete it")


def numbered(output: Sequence[Completion | DeadLetter], first: int) -> list[OutputRecord]:
    """Return the records with numbers from `first` on."""
    return [_record(number, each) for number, each in enumerate(output, first)]


def _record(number: int, each: Completion | DeadLetter) -> OutputRecord:
    if isinstance(each, Completion):
        return OutputRecord(number, Channel.NOTIFICATIONS, each.key, each.headers, each.value)
    return output_record(number, each, 0)
