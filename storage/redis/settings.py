"""The settings of the Redis storage. Imports no client, because that takes a quarter of a second."""

import msgspec

from storage.redis.url import RedisPlace


class RedisSettings(msgspec.Struct, frozen=True):
    """`timeout_ms` bounds each call. With `wait_replicas` a commit succeeds only when that many replicas have it."""

    place: RedisPlace
    namespace: str
    timeout_ms: int = 5_000
    wait_replicas: int = 0

    def __post_init__(self) -> None:
        assert self.timeout_ms > 0
        assert self.wait_replicas >= 0
