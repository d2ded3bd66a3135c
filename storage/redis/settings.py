"""The settings of the Redis storage. Imports no client, because that takes a quarter of a second."""

from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key
from resequencer.keys.value_types import Duration, Url, Whole
from storage.redis.url import RedisLogin, RedisPlace


class RedisServerSettings(RedisLogin, frozen=True, kw_only=True):
    """The keys of the storage. `url` is a `Secret`, for it may hold a password. The defaults are in conf/reference.conf."""

    url: Annotated[str, Key(Url(("redis", "rediss", "unix")))]
    timeout_ms: Annotated[int, Key(Duration("100ms", "10s"))]
    wait_replicas: Annotated[int, Key(Whole(0, 10))]


class RedisSettings(msgspec.Struct, frozen=True):
    """`timeout_ms` bounds each call. With `wait_replicas` a commit succeeds only when that many replicas have it."""

    place: RedisPlace
    namespace: str
    timeout_ms: int
    wait_replicas: int

    def __post_init__(self) -> None:
        assert self.timeout_ms > 0
        assert self.wait_replicas >= 0
