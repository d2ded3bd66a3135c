"""Limits for requests: how many in a second from one address, how many wrong logins, and how large a body."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

_ADDRESSES = 10_000


class RateLimit:
    """A bucket for each address: `burst` at once, then `per_second`. May be used from several threads.

    `passed` returns the milliseconds since the machine was started: a wall clock that is wrong for a moment would lock a user
    out.
    """

    def __init__(self, passed: Callable[[], int], *, per_second: float, burst: int) -> None:
        self._passed = passed
        self._per_second = per_second
        self._burst = burst
        self._lock = Lock()
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Take one. Return whether there was one."""
        with self._lock:
            left = self._left(address)
            self._keep(address, left - 1 if left >= 1 else left)
            return left >= 1

    def has_room(self, address: str) -> bool:
        """Whether `take` would succeed now."""
        with self._lock:
            return self._left(address) >= 1

    def _left(self, address: str) -> float:
        left, at = self._buckets.get(address, (float(self._burst), self._passed()))
        gained = max(0, self._passed() - at) / 1_000 * self._per_second
        return min(float(self._burst), left + gained)

    def _keep(self, address: str, left: float) -> None:
        self._buckets[address] = (left, self._passed())
        self._buckets.move_to_end(address)
        while len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
