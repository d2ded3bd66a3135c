"""Topics that the service makes itself, after the pattern of another one."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, ConfigResourceType

from connectors.kafka.client import make_client
from connectors.kafka.errors import text_of, translated
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import DEFAULT_LIMIT
from connectors.port import TransportRefused, TransportUnavailable, TransportWithheld

_LOG = logging.getLogger(__name__)
_RETENTION, _SIZE = "retention.ms", "max.message.bytes"
_FOR_EVER = -1
_HEADERS_BYTES = 64 << 10
"""So much more than in the pattern a record may take: it gets headers."""


def make_topics(settings: KafkaSettings, like: str, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Make those of the wanted topics that are not there, each with its configuration, as many partitions and replicas as `like`.

    Topics that are there with fewer partitions get as many, with a shorter retention than wanted they get that, and with a
    smaller limit than the records of `like` need, one that is large enough. Retention for ever is wanted for new topics only.
    Else they are left as they are: an operator may have changed them.

    Raises:
        TransportUnavailable: The brokers do not answer, or do not know `like` yet.
        TransportRefused: They cannot be made or changed; the text says how an operator does it.
    """
    with closing(open_admin(settings)) as admin, translated("the topics"):
        found = {each["name"]: each for each in admin.describe_topics([like, *wanted])}
        if _code_of(found, like) == _UNKNOWN:
            raise TransportUnavailable(f"topic {like} does not exist: create it with the number of partitions that it will keep")
        pattern = found[like]["partitions"]
        size = {_SIZE: str(_limit_of(admin, like) + _HEADERS_BYTES)}
        for name, given in wanted.items():
            configuration = {**given, **size}
            with _repairable(name, len(pattern), configuration), suppress(errors.TopicAlreadyExistsError):
                if _code_of(found, name) == _UNKNOWN:
                    made = {"num_partitions": len(pattern), "replication_factor": len(pattern[0]["replica_nodes"])}
                    admin.create_topics({name: {**made, "configs": configuration}}, wait_for_metadata=True)
                    continue
                if 0 < len(found[name]["partitions"]) < len(pattern):
                    admin.create_partitions({name: len(pattern)})
                _raise_values(admin, name, configuration)


def open_admin(settings: KafkaSettings) -> KafkaAdminClient:
    """Connect a client for topics and groups; the caller closes it."""
    options = {name: value for name, value in settings.consumer.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
    return make_client("the brokers", KafkaAdminClient, options | {"request_timeout_ms": settings.call_timeout_ms})


_UNKNOWN = errors.UnknownTopicOrPartitionError.errno


def _code_of(found: Mapping[str, Mapping[str, int]], name: str) -> int:
    return found[name]["error_code"] if name in found else _UNKNOWN


def _limit_of(admin: KafkaAdminClient, name: str) -> int:
    return int(_values_of(admin, name).get(_SIZE, DEFAULT_LIMIT))


def _values_of(admin: KafkaAdminClient, name: str) -> dict[str, str]:
    """Return the retention and the limit of a topic; nothing where reading them is not allowed."""
    with suppress(errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError):
        wanted = ConfigResource(ConfigResourceType.TOPIC, name, [_RETENTION, _SIZE])
        found = admin.describe_configs([wanted], config_filter="all").get("topic", {}).get(name, {})
        return {key: each["value"] for key, each in found.items()}
    return {}


def _raise_values(admin: KafkaAdminClient, name: str, configuration: Mapping[str, str]) -> None:
    low = {
        key: configuration[key]
        for key, value in _values_of(admin, name).items()
        if int(value) != _FOR_EVER and int(value) < int(configuration[key])
    }
    if low:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, low)])
        _LOG.warning("topic %s had too little for what it has to hold: set %s", name, _told(low))


@contextmanager
def _repairable(name: str, partitions: int, configuration: Mapping[str, str]) -> Iterator[None]:
    """Add to a refusal how an operator makes or changes the topic."""
    told = _told(configuration)
    remedy = f"Give the user the rights to create and alter it, or create it with {partitions} partitions and {told}"
    try:
        yield
    except (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError) as error:
        raise TransportWithheld(f"topic {name}", f"{text_of(error)}. {remedy}") from error
    except (errors.InvalidTopicError, errors.PolicyViolationError, errors.InvalidConfigurationError) as error:
        raise TransportRefused(f"topic {name}", f"{text_of(error)}. {remedy}") from error


def _told(configuration: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in configuration.items())
