"""The interface to a server: values by key, and counters. `storage/infinispan/rest_client.py` implements it."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any, Protocol


class Cache(Protocol):
    """A cache with counters. Only `compare_and_set` is conditional, as in Infinispan.

    Each method raises:
        StorageUnavailable: The server did not answer; the call may have had its effect.
        StorageRefused: The server refuses the call, and an operator must correct the cause.
    """

    def get(self, key: str) -> bytes | None:
        """Return the value, None if the value or the cache does not exist."""
        ...

    def put(self, key: str, body: bytes) -> None: ...

    def delete(self, key: str) -> None:
        """Delete a value. Succeeds also if it does not exist."""
        ...

    def begin(self, requests: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """Begin these requests, which are made in any order or at the same time.

        The returned call waits until all have ended, and raises the error of one that failed.
        """
        ...

    def find_counter(self, name: str) -> int | None:
        """Return the counter's value, None if there is no such counter."""
        ...

    def create_counter(self, name: str) -> None:
        """Create a persistent counter with value 0. An existing counter stays unchanged."""
        ...

    def compare_and_set(self, name: str, expected: int, update: int) -> bool:
        """Set the counter to `update` if it is `expected`. Return whether this call changed it; False for a missing counter."""
        ...

    def set_up(self) -> None:
        """Check that the cache exists and keeps its data, or create it. Called first, and again at each takeover."""
        ...

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...

    @property
    def may_lag(self) -> bool:
        """Whether a written value may become visible later (an asynchronous cache)."""
        ...


def ended(begun: Sequence[Future[Any]]) -> Sequence[Future[Any]]:
    """Wait for the end of what was begun, and return it. After the first failure, what has not begun yet is cancelled.

    A server that does not answer is waited for once then, and not as often as there are requests.
    """
    _, others = wait([each for each in begun if not each.cancelled()], return_when=FIRST_EXCEPTION)
    wait([each for each in others if not each.cancel()])
    return begun
