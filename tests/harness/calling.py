"""How tests have users' code called beside the turns."""

from notification_service.wiring.call_runner import HandlingThreads
from notification_service.wiring.handlers import UsersCalls
from resequencer.in_flight import Untracked


def users_calls(threads: int = 0) -> UsersCalls:
    """Return what awaits, and has so many threads; `threads.shutdown` ends them."""
    return UsersCalls(HandlingThreads(Untracked().beside.threads), threads, 64)
