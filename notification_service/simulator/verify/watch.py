"""Looks repeatedly until there is a verdict."""

from collections.abc import Callable
from typing import NamedTuple

from notification_service.simulator.generate.pacer import Pause
from notification_service.simulator.verify.following import Following, Look
from notification_service.simulator.verify.verdict import Verdict


class Watch(NamedTuple):
    """The interval between looks, and how long to wait without progress while something is outstanding."""

    interval_ms: int
    longest_wait_ms: int


def keep_watch(following: Following, watch: Watch, now: Callable[[], int], pause: Pause, say: Callable[[Look], None]) -> Verdict:
    """Report each look to `say`; end when complete, at the first deviation, or after too long without progress.

    Output that is outstanding at such an end is lost. `now` is in milliseconds and never goes back.
    """
    moved_ms = now()
    while True:
        look = following.look()
        say(look)
        if look.is_complete or look.deviations:
            return following.verdict()
        if look.has_moved:
            moved_ms = now()
        elif now() - moved_ms >= watch.longest_wait_ms:
            following.give_up()
            return following.verdict()
        if not look.is_behind:
            pause(watch.interval_ms)
