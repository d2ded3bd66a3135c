"""A user's own store: as programs use it, which give commands and look at values, and the adapter around its `apply` and
`on_value`, which know JSON values only."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from notification_service.aggregation.commands import CommandWriter, member_headers
from notification_service.aggregation.core import Change, Command, CommandRefused, Completion, read_command
from notification_service.aggregation.view import StoreView
from resequencer.clock import Instant
from resequencer.errors import PermanentError, words_of
from resequencer.record import Origin, Partition, Record

_NOWHERE = Origin(Partition("", 0), 0)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class AtomicKVStore:
    """Values that change by commands. Those of a key are applied one after the other, in the order in which they were given.

    What a command changes, what follows from it, and that it was applied are one transaction: exactly once, whatever is killed.
    That a command is given is at least once: after an error, or the end of this process, it may or may not have been given. Give
    it again then, and let `apply` change nothing for a member that has its value.

    Used from one thread. Any call may raise the errors of a transport (guardian/ports.py).
    """

    def __init__(self, commands: CommandWriter, open_view: Callable[[], StoreView]) -> None:
        """`open_view` is called at the first `get`."""
        self._commands = commands
        self._open_view = open_view
        self._view: StoreView | None = None

    def update(self, key: str, member: str | None, command: object) -> None:
        """Give a command for the value of `key`, or for that of one of its members, durably. It is applied soon, by a worker.

        `command` is what JSON can say. Key and member have 1 to 256 characters
        without control characters.

        Raises:
            ValueError: The command is no JSON, or the key or the member is none.
        """
        try:
            body = _encode(command)
        except (TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise ValueError(f"the command is no JSON: {error}") from error
        refused = read_command(Record(_NOWHERE, body, key.encode(), member_headers(member)))
        if isinstance(refused, CommandRefused):
            raise ValueError(refused.problem)  # noqa: TRY004 - It is the value of a text that is wrong.
        self._commands.update(key, member, body)

    def get(self, key: str) -> Any:
        """Return the value of a key as it is after the last transaction; None if there is none.

        A command that was just given may not be in it yet. Decide by what `on_value` returns, not by asking again.
        """
        if self._view is None:
            self._view = self._open_view()
        self._view.refresh(key)
        found = self._view.find(key)
        return None if found is None else _decode(found.body)

    def close(self) -> None:
        self._commands.close()
        if self._view is not None:
            self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


Apply = Callable[[Any, Any, Any], object]
"""`apply(head, member, command)` returns `(head, member)`: JSON values, None where there is none (any more)."""
OnValue = Callable[[str, Any, Any], object]
"""`on_value(key, old, new)` returns the JSON values to publish under the key, in order."""


class UsersAggregate:
    """What the callables raise, and what they return that is no JSON, makes the command a dead letter. The store continues."""

    def __init__(self, apply: Apply, on_value: OnValue | None) -> None:
        self._apply, self._on_value = apply, on_value

    def apply(self, head: bytes | None, member: bytes | None, command: Command, now: Instant) -> Change:
        del now
        try:
            body = _decode(command.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PermanentError(f"the command is no JSON: {error}") from error
        answer = _called(self._apply, _read(head), _read(member), body)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise PermanentError(f"apply returned {type(answer).__name__} instead of a pair of head and member")
        if command.member is None and answer[1] is not None:
            raise PermanentError("apply returned a value of a member for a command without one")
        return Change(_written(answer[0]), _written(answer[1]))

    def on_due(self, key: str, head: bytes, now: Instant, counts_from: Instant | None) -> Change:
        raise AssertionError(f"no value of a user's own store is ever due: {key}, {now}, {counts_from}, {head[:50]!r}")

    def dated_back(self, head: bytes, now: Instant) -> Change | None:
        del head, now
        return None

    def on_value(self, key: str, old: bytes | None, new: bytes | None, now: Instant) -> Sequence[Completion]:
        del now
        if self._on_value is None:
            return ()
        answer = _called(self._on_value, key, _read(old), _read(new))
        if not isinstance(answer, list | tuple):
            raise PermanentError(f"on_value returned {type(answer).__name__} instead of a list")
        return [Completion(key.encode(), (), _encoded(each)) for each in answer]


def _called(call: Callable[..., object], *given: object) -> object:
    try:
        return call(*given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Foreign code may raise anything. That costs its command, not the store.
        raise PermanentError(f"{getattr(call, '__name__', 'it')} raised {words_of(error)}") from error


def _read(value: bytes | None) -> Any:
    return None if value is None else _decode(value)


def _written(value: object) -> bytes | None:
    return None if value is None else _encoded(value)


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise PermanentError(f"a value is no JSON: {words_of(error)}") from error
