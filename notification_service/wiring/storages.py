"""The storages that a service can be configured with: a row each in `STORAGES`.

A client is imported where it is used, for that takes a quarter of a second.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple
from urllib.parse import urlsplit

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of, settings_from
from notification_service.configuration.sections import StorageType
from resequencer.errors import ConfigurationError
from resequencer.record import Partition
from resequencer.storage_port import Storage
from storage.embedded.database import Database
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.embedded.view import EmbeddedStorageView
from storage.infinispan.storage import InfinispanStorage, LayoutSettings, ServerSettings
from storage.infinispan.view import InfinispanStorageView
from storage.none import NoneSettings, NoneStorage
from storage.redis.settings import RedisServerSettings, RedisSettings, read_place
from storage.view_port import StorageView

_IDLE_BYTES = 512 * 1024 * 1024
"""With storage none: the memory in bytes for idle units; units with stashed envelopes come on top of it."""

_BUSY_TIMEOUT_MS = 5_000
_INFINISPAN_URL = path_of(ServerSettings, "url")


class StorageKind(NamedTuple):
    """What a kind of storage needs to be made of a configuration. Only `preflight` connects.

    `name` is a text that differs for storages that the configuration tells apart; it may contain a password. `preflight` checks
    the storage as a takeover does, creates nothing, and returns what the user should know, a sentence each. Each of them raises
    ConfigurationError if an address or a file cannot be used; `preflight` raises StorageUnavailable and StorageRefused as the
    service would meet them, and OSError for a missing directory.
    """

    make: Callable[[Configuration], Storage]
    make_view: Callable[[Configuration], StorageView | None]
    name: Callable[[Configuration], str]
    preflight: Callable[[Configuration], Sequence[str]]


def kind_of_storage(configuration: Configuration) -> StorageKind:
    """Return the row of the configured storage."""
    return STORAGES[configuration.resequencer.storage_type]


def random_token() -> str:
    return secrets.token_hex(8)


def _preflight_embedded(configuration: Configuration) -> Sequence[str]:
    """Begin a write, which a running service allows. A missing database is no error, nor is the run directory: the service makes
    them.
    """
    file = configuration.storage.embedded_file
    if file.exists():
        with closing(Database(file, _BUSY_TIMEOUT_MS)) as database, database.writing():
            pass
    elif not file.parent.is_dir() and file.parent != configuration.notification.run_directory:
        raise FileNotFoundError(None, "does not exist; create it, or mount the file system that holds it", str(file.parent))
    return ()


def _redis_settings(configuration: Configuration) -> RedisSettings:
    redis = configuration.storage.redis
    for name in ("ca_file", "certificate_file", "key_file"):
        if (file := getattr(redis, name)) is not None and not os.access(file, os.R_OK):
            raise ConfigurationError(path_of(RedisServerSettings, name), f"{file} cannot be read; name a readable file")
    try:
        place = read_place(redis.url, redis)
    except ValueError as error:
        raise ConfigurationError(path_of(RedisServerSettings, "url"), str(error)) from error
    return settings_from(RedisSettings, redis, place=place, namespace=configuration.storage.namespace)


def _make_redis(configuration: Configuration) -> Storage:
    from storage.redis.storage import RedisStorage

    return RedisStorage(_redis_settings(configuration), random_token)


def _make_redis_view(configuration: Configuration) -> StorageView:
    from storage.redis.view import RedisStorageView

    return RedisStorageView(_redis_settings(configuration))


def _name_redis(configuration: Configuration) -> str:
    redis = _redis_settings(configuration)
    return f"redis {redis.place!r} {redis.place.options.get('db', 0)} {redis.namespace}"


def _preflight_redis(configuration: Configuration) -> Sequence[str]:
    """Check also that the user has all rights."""
    from storage.redis.storage import RedisStorage

    with closing(RedisStorage(_redis_settings(configuration), random_token)) as storage:
        return storage.preflight(Partition(configuration.ingress.topic, 0))


def _infinispan_server(configuration: Configuration) -> ServerSettings:
    infinispan = configuration.storage.infinispan
    if (file := infinispan.ca_file) is not None and not os.access(file, os.R_OK):
        raise ConfigurationError(path_of(ServerSettings, "ca_file"), f"{file} cannot be read; name a readable file")
    try:
        place = urlsplit(infinispan.url)
        is_usable = bool(place.hostname) and (place.port or 1) > 0 and not (place.query or place.fragment)
    except ValueError as error:
        raise ConfigurationError(_INFINISPAN_URL, f"cannot be understood: {error}") from error
    if "@" in place.netloc:
        problem = "contains a login, which logs would show; use the keys username and password"
        raise ConfigurationError(_INFINISPAN_URL, problem)
    if not is_usable:
        raise ConfigurationError(_INFINISPAN_URL, 'is not the address of a server, such as "http://localhost:11222"')
    return infinispan


def _make_infinispan(configuration: Configuration) -> Storage:
    from storage.infinispan.rest_client import InfinispanRest

    layout = LayoutSettings(configuration.storage.namespace)
    return InfinispanStorage(layout, InfinispanRest(_infinispan_server(configuration)), random_token)


def _make_infinispan_view(configuration: Configuration) -> StorageView:
    from storage.infinispan.rest_client import InfinispanRest

    return InfinispanStorageView(InfinispanRest(_infinispan_server(configuration)), configuration.storage.namespace)


def _name_infinispan(configuration: Configuration) -> str:
    server = _infinispan_server(configuration)
    return f"infinispan {server.url} {server.cache} {configuration.storage.namespace}"


def _preflight_infinispan(configuration: Configuration) -> Sequence[str]:
    from storage.infinispan.rest_client import InfinispanRest

    with closing(InfinispanRest(_infinispan_server(configuration))) as cache:
        return cache.preflight()


STORAGES = {
    StorageType.NONE: StorageKind(
        lambda _: NoneStorage(NoneSettings(_IDLE_BYTES), random_token), lambda _: None, lambda _: "none", lambda _: ()
    ),
    StorageType.EMBEDDED: StorageKind(
        lambda configuration: EmbeddedStorage(EmbeddedSettings(configuration.storage.embedded_file), random_token),
        lambda configuration: EmbeddedStorageView(configuration.storage.embedded_file),
        lambda configuration: f"embedded {configuration.storage.embedded_file.absolute()}",
        _preflight_embedded,
    ),
    StorageType.REDIS: StorageKind(_make_redis, _make_redis_view, _name_redis, _preflight_redis),
    StorageType.INFINISPAN: StorageKind(_make_infinispan, _make_infinispan_view, _name_infinispan, _preflight_infinispan),
}
