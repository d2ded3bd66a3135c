"""The interface of what a store holds: how a command changes a value, and what follows from a change."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from notification_service.aggregation.core.command import Command
from resequencer.clock import Instant
from resequencer.record import Headers


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
