"""The groups of a service as one console has them: the watch, the completions, and which groups were told to close."""

from collections import OrderedDict
from contextlib import closing
from threading import Lock
from typing import NamedTuple

from notification_service.aggregation.payments.commands import encode_close
from notification_service.console.groups.feed import CompletionFeed
from notification_service.console.groups.port import GroupSource
from notification_service.console.groups.watch import GroupsWatch
from resequencer.clock import Clock, Instant

_REMEMBERED = 1_000


class GivenClose(NamedTuple):
    """Who has told to close a group by this console, and when."""

    by: str
    at: Instant


class Groups:
    """May be used from several threads."""

    def __init__(self, source: GroupSource, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self.feed = CompletionFeed(source.open_completions, clock)
        self.watch = GroupsWatch(source, clock, self.feed.tell_change)
        self._given: OrderedDict[str, GivenClose] = OrderedDict()
        self._lock = Lock()

    def close_group(self, key: str, by: str, because: str) -> None:
        """Give the command, durably. The worker that has the group carries it out.

        Raises:
            The errors of a transport: it is not known whether it was given; it is harmless to give it again.
        """
        with closing(self.source.open_commands()) as commands:
            commands.update(key, None, encode_close(by, because))
        with self._lock:
            self._given[key] = GivenClose(by, self._clock.now())
            self._given.move_to_end(key)
            while len(self._given) > _REMEMBERED:
                self._given.popitem(last=False)

    def find_given(self, key: str) -> GivenClose | None:
        """Return who told to close the group; None if nobody did, or if it was long ago."""
        with self._lock:
            return self._given.get(key)

    def start(self) -> None:
        self.watch.start()

    def close(self) -> None:
        self.feed.close()
        self.watch.close()
