"""What a Redis storage is told at its making. Imports no client, which takes a quarter of a second."""

import msgspec

from storage.redis_place import RedisPlace

GRACE_MS = 600_000
"""The server keeps an idle unit so much longer than it is remembered: what a worker has in use must not vanish under it."""


class Span(msgspec.Struct, frozen=True):
    """How long an idle unit is remembered after its last change, and how long the owner may hear nothing of the server."""

    retention_ms: int
    silence_ms: int


class RedisSettings(msgspec.Struct, frozen=True):
    """No call waits longer than `timeout_ms` for the server. With `wait_replicas` a commit counts once so many have it.

    A unit may be in use for `idle_timeout_ms` after its last change without being loaded again.
    """

    place: RedisPlace
    namespace: str
    retention_ms: int
    idle_timeout_ms: int
    timeout_ms: int = 5_000
    wait_replicas: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.idle_timeout_ms <= self.retention_ms
        assert self.timeout_ms > 0
        assert self.wait_replicas >= 0

    @property
    def span(self) -> Span:
        """A unit is in use until the idle timeout has passed since its last change, and the cycle that is under way has ended.

        A cycle waits for the server a few times at most; each of these waits may last a quarter of what is left until the
        server lets the unit go.
        """
        return Span(self.retention_ms, (self.retention_ms + GRACE_MS - self.idle_timeout_ms) // 4)
