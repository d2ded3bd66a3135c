"""What the configuration says of the Redis storage."""

import os

from daemon.configuration.configuration import Configuration
from daemon.configuration.schema import STORAGE
from domain.errors import ConfigurationError
from storage.redis.settings import RedisSettings
from storage.redis.url import RedisLogin, read_place


def redis_settings(configuration: Configuration) -> RedisSettings:
    """Where the server is and how long it is waited for; nothing is connected.

    Raises:
        ConfigurationError: The url cannot be understood, or a file is not there.
    """
    redis = configuration.storage.redis
    for key, file in (("ca", redis.ca_file), ("certificate", redis.certificate_file), ("key", redis.key_file)):
        if file is not None and not os.access(file, os.R_OK):
            raise ConfigurationError(f"{STORAGE}.redis.tls.{key}-file", f"{file} cannot be read; name a file that can")
    login = RedisLogin(redis.username, redis.password, redis.ca_file, redis.certificate_file, redis.key_file)
    try:
        place = read_place(redis.url, login)
    except ValueError as error:
        raise ConfigurationError(f"{STORAGE}.redis.url", str(error)) from error
    return RedisSettings(place, configuration.storage.namespace, redis.timeout_ms, redis.wait_replicas)
