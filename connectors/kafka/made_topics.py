"""Topics that the service makes itself, after the pattern of another one."""

from collections.abc import Mapping
from contextlib import closing

from kafka import KafkaAdminClient, errors

from connectors.kafka.client import make_client
from connectors.kafka.errors import text_of, translated
from connectors.kafka.settings import KafkaSettings
from connectors.port import TransportRefused, TransportUnavailable, TransportWithheld


def make_topics(settings: KafkaSettings, like: str, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Make those of the wanted topics that are not there, each with its configuration, as many partitions and replicas as `like`.

    Topics that are there with fewer partitions get as many; else they are left as they are: an operator may have changed them.

    Raises:
        TransportUnavailable: The brokers do not answer, or do not know `like` yet.
        TransportRefused: They cannot be made; the text says how an operator makes them.
    """
    options = {name: value for name, value in settings.consumer.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
    admin = make_client("the brokers", KafkaAdminClient, options | {"request_timeout_ms": settings.call_timeout_ms})
    with closing(admin), translated("the topics"):
        found = {each["name"]: each for each in admin.describe_topics([like, *wanted])}
        if _code_of(found, like) == _UNKNOWN:
            raise TransportUnavailable(f"topic {like} does not exist: create it with the number of partitions that it will keep")
        pattern = found[like]["partitions"]
        for name, configuration in wanted.items():
            try:
                if _code_of(found, name) == _UNKNOWN:
                    made = {"num_partitions": len(pattern), "replication_factor": len(pattern[0]["replica_nodes"])}
                    admin.create_topics({name: {**made, "configs": dict(configuration)}}, wait_for_metadata=True)
                elif 0 < len(found[name]["partitions"]) < len(pattern):
                    admin.create_partitions({name: len(pattern)})
            except errors.TopicAlreadyExistsError:
                continue
            except (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError) as error:
                raise TransportWithheld(f"topic {name}", f"{text_of(error)}. {_remedy(len(pattern), configuration)}") from error
            except (errors.InvalidTopicError, errors.PolicyViolationError, errors.InvalidConfigurationError) as error:
                raise TransportRefused(f"topic {name}", f"{text_of(error)}. {_remedy(len(pattern), configuration)}") from error


_UNKNOWN = errors.UnknownTopicOrPartitionError.errno


def _code_of(found: Mapping[str, Mapping[str, int]], name: str) -> int:
    return found[name]["error_code"] if name in found else _UNKNOWN


def _remedy(partitions: int, configuration: Mapping[str, str]) -> str:
    told = ", ".join(f"{name} = {value}" for name, value in configuration.items())
    return f"Give the user the rights to create and alter it, or create it with {partitions} partitions and {told}"
