"""How tests have users' code called beside the turns."""

from notification_service.wiring.waiting_calls import HandlingThreads, UsersCalls
from resequencer.in_flight import Untracked


def users_calls(threads: int = 0) -> UsersCalls:
    """Return what awaits, and has so many threads; `threads.shutdown` ends them."""
    return UsersCalls(HandlingThreads([Untracked() for _ in range(threads)]), threads, 64)
