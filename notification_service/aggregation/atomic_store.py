"""A store as a user's own programs use it: they give commands, and look at values."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from notification_service.aggregation.commands import CommandWriter, member_headers
from notification_service.aggregation.core import CommandRefused, read_command
from notification_service.aggregation.view import StoreView
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
        """Return the value of a key as the last transaction left it; None if there is none.

        A command that was just given may not be in it yet. Decide by what `on_value` lets out, not by asking again.
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
