"""What the console reads of groups, and how it gives a command, as the daemon's composition provides it."""

from pathlib import Path
from typing import Protocol

from notification_service.aggregation.commands import CommandWriter
from notification_service.aggregation.completions import CompletionsLog
from notification_service.aggregation.view import StoreView
from notification_service.status.aggregation import AggregationStatus


class GroupSource(Protocol):
    """The groups of a service. Whatever is opened is used by one thread, and closed by its user.

    Any call but `find_status` may raise the errors of a transport (guardian/ports.py).
    """

    def claim(self) -> Path:
        """Return a directory that is this console's alone until its process ends. The same at each call."""
        ...

    def open_view(self) -> StoreView:
        """Open the one view of this process that is refreshed."""
        ...

    def open_copies(self) -> StoreView:
        """Open a view of the values as the refreshed view has them, for a request. It waits for no server."""
        ...

    def open_commands(self) -> CommandWriter: ...

    def open_completions(self) -> CompletionsLog: ...

    def find_status(self) -> AggregationStatus:
        """Return what the aggregation workers on this machine report."""
        ...
