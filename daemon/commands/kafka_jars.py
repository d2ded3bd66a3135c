"""What Spark has to be started with to read topics."""

from domain.errors import ConfigurationError
from servers.errors import ServersError
from servers.java.jars import get_jars


def with_kafka(options: dict[str, str]) -> dict[str, str]:
    """The session's options with the jars of its connector for Kafka, which Maven brings when they are asked for first.

    Raises:
        ConfigurationError: They are not there and cannot be had.
    """
    try:
        found = sorted(map(str, get_jars("spark-kafka").glob("*.jar")))
    except ServersError as error:
        raise ConfigurationError("spark-kafka", str(error)) from error
    given = [each for each in options.get("spark.jars", "").split(",") if each]
    return options | {"spark.jars": ",".join([*given, *found])}
