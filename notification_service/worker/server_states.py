"""Since when each server of a worker has been in the state that it is in. Pure: instants are handed in."""

from collections.abc import Mapping

from notification_service.status.report import ServerStatus
from resequencer.clock import Instant, instant_text

SERVERS = ("source", "storage", "output")
"""As a worker's state names them (`storage unavailable`)."""


class ServerStates:
    """Remembers the last state of each server between two reports, so an instant is late by the time between two at most."""

    def __init__(self) -> None:
        self._last: dict[str, ServerStatus] = {}

    def note(self, unavailable: Mapping[str, str | None], now: Instant, *, is_known: bool) -> Mapping[str, ServerStatus]:
        """Return the state of each server at `now`; `unavailable` has those that do not answer, with the reason.

        The others are available if that `is_known`: before the worker has begun, it has not asked all of them, and they are
        left out.
        """
        states = {}
        for name in SERVERS:
            is_available, before = name not in unavailable, self._last.get(name)
            if is_available and not is_known:
                continue
            since = before.since if before is not None and before.is_available == is_available else instant_text(now)
            states[name] = ServerStatus(is_available, since, unavailable.get(name))
        self._last = states
        return dict(states)
