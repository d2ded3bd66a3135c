"""The settings of the storages, each from its sections."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.package_settings import settings_from
from notification_service.configuration.schema import path_of
from resequencer.errors import ConfigurationError
from storage.infinispan.storage import LayoutSettings, ServerSettings
from storage.redis.settings import RedisServerSettings, RedisSettings, read_place

_URL = path_of(ServerSettings, "url")


def infinispan_server(configuration: Configuration) -> ServerSettings:
    """Return the address of the cache and the login; no connection is made.

    Raises:
        ConfigurationError: The url cannot be used, or the file of authorities is not there.
    """
    infinispan = configuration.storage.infinispan
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


def infinispan_layout(configuration: Configuration) -> LayoutSettings:
    """Return the names under which the state is stored in the cache."""
    return LayoutSettings(configuration.storage.namespace)


def redis_settings(configuration: Configuration) -> RedisSettings:
    """Return the server's address and the time limits; no connection is made.

    Raises:
        ConfigurationError: The url cannot be understood, or a file is not there.
    """
    redis = configuration.storage.redis
    for name in ("ca_file", "certificate_file", "key_file"):
        file: Path | None = getattr(redis, name)
        if file is not None and not os.access(file, os.R_OK):
            raise ConfigurationError(path_of(RedisServerSettings, name), f"{file} cannot be read; name a readable file")
    try:
        place = read_place(redis.url, redis)
    except ValueError as error:
        raise ConfigurationError(path_of(RedisServerSettings, "url"), str(error)) from error
    return settings_from(RedisSettings, redis, place=place, namespace=configuration.storage.namespace)
