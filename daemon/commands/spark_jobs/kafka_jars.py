"""Adds Spark's connector for Kafka to a session."""

from domain.errors import ConfigurationError
from servers.errors import ServersError
from servers.java.jars import get_jars


def with_kafka(options: dict[str, str]) -> dict[str, str]:
    """Return the session's options with the jars of the Kafka connector. Maven downloads them at the first use.

    Raises:
        ConfigurationError: The jars are missing and cannot be downloaded.
    """
    try:
        found = sorted(map(str, get_jars("spark-kafka").glob("*.jar")))
    except ServersError as error:
        raise ConfigurationError("spark-kafka", str(error)) from error
    given = [each for each in options.get("spark.jars", "").split(",") if each]
    return options | {"spark.jars": ",".join([*given, *found])}
