"""The adapter around a user's own `apply` and `on_value`, which know JSON values only."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from notification_service.aggregation.core import Change, Command, Completion
from resequencer.clock import Instant
from resequencer.errors import PermanentError, words_of

Apply = Callable[[Any, Any, Any], object]
"""`apply(head, member, command)` returns `(head, member)`: JSON values, None where there is none (any more)."""
OnValue = Callable[[str, Any, Any], object]
"""`on_value(key, old, new)` returns the JSON values to publish under the key, in order."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class UsersAggregate:
    """What the callables raise, and what they return that is no JSON, makes the command a dead letter. The store goes on."""

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
