"""Makes the settings of the Redis storage from the configuration."""

import os
from pathlib import Path

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.package_settings import settings_from
from notification_service.configuration.schema import path_of
from resequencer.errors import ConfigurationError
from storage.redis.settings import RedisServerSettings, RedisSettings
from storage.redis.url import read_place


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
