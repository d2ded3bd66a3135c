"""What a Redis storage is told at its making. Imports no client, which takes a quarter of a second."""

import msgspec

from storage.redis.url import RedisPlace


class RedisSettings(msgspec.Struct, frozen=True):
    """No call waits longer than `timeout_ms` for the server. With `wait_replicas` a commit counts once so many have it."""

    place: RedisPlace
    namespace: str
    timeout_ms: int = 5_000
    wait_replicas: int = 0

    def __post_init__(self) -> None:
        assert self.timeout_ms > 0
        assert self.wait_replicas >= 0
