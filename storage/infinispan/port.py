"""What the layout needs of a server: values by key and counters. `storage/infinispan/rest_client.py` has the real one."""

from typing import Protocol


class Cache(Protocol):
    """Nothing here is conditional but `compare_and_set`: that is how Infinispan is.

    Raises, each of them:
        StorageUnavailable: No answer; it may have been done.
        StorageRefused: The server does not let us, for a reason that a person must mend.
    """

    def get(self, key: str) -> bytes | None:
        """None if it is not there, nor the cache."""
        ...

    def put(self, key: str, body: bytes) -> None: ...

    def delete(self, key: str) -> None:
        """Also one that is not there."""
        ...

    def find_counter(self, name: str) -> int | None:
        """None if there is no such counter."""
        ...

    def create_counter(self, name: str) -> None:
        """At 0, persistent; one that is there already stays as it is."""
        ...

    def compare_and_set(self, name: str, expected: int, update: int) -> bool:
        """Whether it was changed by this call. A counter that is not there is not."""
        ...

    def set_up(self) -> None:
        """See that the cache is there and keeps what it is told, or make it; before anything else, and again at each takeover."""
        ...

    def close(self) -> None:
        """Closes its connections; used again, it makes new ones."""
        ...

    @property
    def may_lag(self) -> bool:
        """Whether what was put may be seen a while later (an asynchronous cache)."""
        ...
