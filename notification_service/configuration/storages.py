"""The storages that can be chosen: `STORAGES` has a row for each, with everything outside its package that depends on the kind.

The rows import a storage when they make something of it: clients take a fifth of a second to import, or are not installed.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from notification_service.configuration.schema import path_of, settings_from
from notification_service.configuration.sections import Resequencers, Sections, Storages, StorageType
from resequencer.errors import ConfigurationError
from resequencer.record import Partition
from resequencer.storage_port import Storage
from storage.infinispan.storage import LayoutSettings, ServerSettings
from storage.redis.settings import RedisServerSettings, RedisSettings, read_place
from storage.view_port import StorageView

if TYPE_CHECKING:
    from storage.embedded.progress import Progress

STORAGE_TYPE = path_of(Resequencers, "storage_type")
_URL = path_of(ServerSettings, "url")
_IDLE_BYTES = 512 * 1024 * 1024
"""With storage none: the memory in bytes for idle units; units with stashed envelopes come on top of it."""

_BUSY_TIMEOUT_MS = 5_000

RandomToken = Callable[[], str]


class StorageKind(NamedTuple):
    """What depends on the kind of storage. Nothing but `preflight` and `find_progress` connects to a server or opens a file.

    `name` gives a text that differs for storages that the configuration tells apart; it may contain a password. It reads all
    settings of the storage, and raises ConfigurationError if one cannot be used, as `make` and `open_view` do.

    `preflight` tries what the service will need, changes nothing, and returns what the user should know, a sentence each. It
    raises StorageUnavailable or StorageRefused as the service would meet them, or a ConfigurationError that names a key.

    `open_view` is None if no other program can read the storage. `find_file` gives the file that one service alone may use.
    `find_progress` tells how far a partition is handled; without it, only the input of a kind that is not durable can be
    archived, because its position in the output tells the same.
    """

    name: Callable[[Sections], str]
    make: Callable[[Sections, RandomToken], Storage]
    preflight: Callable[[Sections], Sequence[str]]
    open_view: Callable[[Sections], StorageView] | None = None
    find_file: Callable[[Sections], Path] | None = None
    find_progress: "Callable[[Sections, Partition], Progress | None] | None" = None
    is_durable: bool = True

    @property
    def can_archive(self) -> bool:
        """Return whether it is known which input still waits, so that the other input can be archived."""
        return self.find_progress is not None or not self.is_durable


def storage_kind(sections: Sections) -> StorageKind:
    """Return the row of the storage that is chosen."""
    return STORAGES[sections.resequencer.storage_type]


def kind_named(name: str) -> StorageKind:
    """Return the row of the storage with this name, as the configuration has it: two names may mean the same storage."""
    return STORAGES[StorageType(name)]


def _make_none(sections: Sections, random_token: RandomToken) -> Storage:
    from storage.none import NoneSettings, NoneStorage

    del sections
    return NoneStorage(NoneSettings(_IDLE_BYTES), random_token)


def _make_embedded(sections: Sections, random_token: RandomToken) -> Storage:
    from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage

    return EmbeddedStorage(EmbeddedSettings(sections.storage.embedded_file), random_token)


def _preflight_embedded(sections: Sections) -> Sequence[str]:
    """Begin a write, which a running service allows. A missing database is no error: the service makes it.

    Raises:
        StorageUnavailable, StorageRefused: As the service would meet them.
        ConfigurationError: Its directory is missing, and is not the run directory, which the service makes.
    """
    from storage.embedded.database import Database

    file = sections.storage.embedded_file
    if file.exists():
        with closing(Database(file, _BUSY_TIMEOUT_MS)) as database, database.writing():
            pass
    elif not file.parent.is_dir() and file.parent != sections.notification.run_directory:
        problem = f"{file.parent} does not exist; create it, or mount the file system that holds it"
        raise ConfigurationError(path_of(Storages, "embedded_file"), problem)
    return ()


def _view_embedded(sections: Sections) -> StorageView:
    from storage.embedded.view import EmbeddedStorageView

    return EmbeddedStorageView(sections.storage.embedded_file)


def _progress_in_embedded(sections: Sections, partition: Partition) -> "Progress | None":
    from storage.embedded.progress import find_progress

    return find_progress(sections.storage.embedded_file, partition)


def _redis_settings(sections: Sections) -> RedisSettings:
    """Return the server's address and the time limits; no connection is made.

    Raises:
        ConfigurationError: The url cannot be understood, or a file is not there.
    """
    redis = sections.storage.redis
    for name in ("ca_file", "certificate_file", "key_file"):
        file: Path | None = getattr(redis, name)
        if file is not None and not os.access(file, os.R_OK):
            raise ConfigurationError(path_of(RedisServerSettings, name), f"{file} cannot be read; name a readable file")
    try:
        place = read_place(redis.url, redis)
    except ValueError as error:
        raise ConfigurationError(path_of(RedisServerSettings, "url"), str(error)) from error
    return settings_from(RedisSettings, redis, place=place, namespace=sections.storage.namespace)


def _name_redis(sections: Sections) -> str:
    settings = _redis_settings(sections)
    return f"{StorageType.REDIS} {settings.place!r} {settings.place.options.get('db', 0)} {settings.namespace}"


def _make_redis(sections: Sections, random_token: RandomToken) -> Storage:
    from storage.redis.storage import RedisStorage

    return RedisStorage(_redis_settings(sections), random_token)


def _preflight_redis(sections: Sections) -> Sequence[str]:
    """Check the server as a takeover does, and that the user has all rights."""
    from storage.redis.storage import RedisStorage

    with closing(RedisStorage(_redis_settings(sections), str)) as storage:
        return storage.preflight(Partition(sections.ingress.topic, 0))


def _view_redis(sections: Sections) -> StorageView:
    from storage.redis.view import RedisStorageView

    return RedisStorageView(_redis_settings(sections))


def _infinispan_server(sections: Sections) -> ServerSettings:
    """Return the address of the cache and the login; no connection is made.

    Raises:
        ConfigurationError: The url cannot be used, or the file of authorities is not there.
    """
    infinispan = sections.storage.infinispan
    if (file := infinispan.ca_file) is not None and not os.access(file, os.R_OK):
        raise ConfigurationError(path_of(ServerSettings, "ca_file"), f"{file} cannot be read; name a readable file")
    try:
        place = urlsplit(infinispan.url)
        is_usable = bool(place.hostname) and (place.port or 1) > 0 and not (place.query or place.fragment)
    except ValueError as error:
        raise ConfigurationError(_URL, f"cannot be understood: {error}") from error
    if "@" in place.netloc:
        problem = "contains a login, which logs would show; use the keys username and password"
        raise ConfigurationError(_URL, problem)
    if not is_usable:
        raise ConfigurationError(_URL, 'is not the address of a server, such as "http://localhost:11222"')
    return infinispan


def _name_infinispan(sections: Sections) -> str:
    server = _infinispan_server(sections)
    return f"{StorageType.INFINISPAN} {server.url} {server.cache} {sections.storage.namespace}"


def _make_infinispan(sections: Sections, random_token: RandomToken) -> Storage:
    from storage.infinispan.rest_client import InfinispanRest
    from storage.infinispan.storage import InfinispanStorage

    layout = LayoutSettings(sections.storage.namespace)
    return InfinispanStorage(layout, InfinispanRest(_infinispan_server(sections)), random_token)


def _preflight_infinispan(sections: Sections) -> Sequence[str]:
    """Check the cache as a takeover does, but create none."""
    from storage.infinispan.rest_client import InfinispanRest

    with closing(InfinispanRest(_infinispan_server(sections))) as cache:
        return cache.preflight()


def _view_infinispan(sections: Sections) -> StorageView:
    from storage.infinispan.rest_client import InfinispanRest
    from storage.infinispan.view import InfinispanStorageView

    return InfinispanStorageView(InfinispanRest(_infinispan_server(sections)), sections.storage.namespace)


STORAGES: Mapping[StorageType, StorageKind] = {
    StorageType.NONE: StorageKind(
        name=lambda _: StorageType.NONE,
        make=_make_none,
        preflight=lambda _: (),
        is_durable=False,
    ),
    StorageType.EMBEDDED: StorageKind(
        name=lambda sections: f"{StorageType.EMBEDDED} {sections.storage.embedded_file.absolute()}",
        make=_make_embedded,
        preflight=_preflight_embedded,
        open_view=_view_embedded,
        find_file=lambda sections: sections.storage.embedded_file,
        find_progress=_progress_in_embedded,
    ),
    StorageType.REDIS: StorageKind(
        name=_name_redis,
        make=_make_redis,
        preflight=_preflight_redis,
        open_view=_view_redis,
    ),
    StorageType.INFINISPAN: StorageKind(
        name=_name_infinispan,
        make=_make_infinispan,
        preflight=_preflight_infinispan,
        open_view=_view_infinispan,
    ),
}
DURABLE = tuple(name.value for name, kind in STORAGES.items() if kind.is_durable)
ARCHIVABLE = tuple(name.value for name, kind in STORAGES.items() if kind.can_archive)
