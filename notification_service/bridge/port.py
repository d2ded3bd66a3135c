"""The ports of the bridge: a source whose messages come again until they are acknowledged, and a start that can be read again.

Both raise errors of the transport's port (guardian/ports.py). An object that has raised TransportUnavailable or
TransportRefused is closed, and another one is opened.
"""

from collections.abc import Sequence
from typing import Protocol

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Line


class TooLarge(TransportRefused):
    """A start never takes one of the lines to append, or several: they are too large. The others may have been appended.

    Which ones is known only of lines that are appended alone: a client blames all that were under way together.
    """


class BridgeSource(Protocol):
    """An open source. Used from one thread."""

    def take(self, timeout_ms: int) -> Sequence[Line]:
        """Return what has come since the last call, in its order; wait up to `timeout_ms` for a first message.

        A line has the message's body, its key if it has one, and its properties as headers.

        Raises:
            TransportUnavailable: The connection is lost. What was not acknowledged comes again, in order, by the next one.
            ConfigurationError: Another program has taken the place of this one at the broker.
        """
        ...

    def acknowledge(self) -> None:
        """Acknowledge everything that was taken. That may be lost on its way; then the messages come again.

        Raises: as `take`.
        """
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for an operator about what does not stop the bridge."""
        ...

    def close(self) -> None: ...


class Start(Protocol):
    """An open replayable start. Used from one thread."""

    def append(self, lines: Sequence[Line]) -> None:
        """Append the lines durably, each to the partition of its key, and keep their order within a partition.

        Raises:
            TransportUnavailable: It does not answer, or has no room. Any of the lines may have been appended: those that are
                appended again are duplicates.
            TooLarge: It never takes one of the lines.
            TransportRefused: It takes nothing before an operator has changed something.
        """
        ...

    def close(self) -> None: ...
