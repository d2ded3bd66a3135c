"""Topics that the service makes itself, after the pattern of another one."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, ConfigResourceType

from guardian.ports import TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.kafka.client import make_client
from notification_service.connectors.kafka.errors import text_of, translated
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import DEFAULT_LIMIT

_LOG = logging.getLogger("resequencer.connectors")
_RETENTION, _BYTES, _SIZE = "retention.ms", "retention.bytes", "max.message.bytes"
_POLICY, _TIMESTAMP = "cleanup.policy", "message.timestamp.type"
_FOR_EVER = -1
_HEADERS_BYTES = 64 << 10
"""So much more than in the pattern a record may take: it gets headers."""


def make_topics(settings: KafkaSettings, like: str, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Make those of the wanted topics that are not there, each with its configuration, as many partitions and replicas as `like`.

    Topics that are there with fewer partitions get as many, with a shorter retention than wanted they get that, and with a
    smaller limit than the records of `like` need, one that is large enough. One for which a retention is wanted is not compacted
    any more. Retention for ever is wanted for new topics only, and for those that were compacted alone: how long others keep
    their records is an operator's. Else they are left as they are: an operator may have changed them.

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
    """Return what decides which records a topic takes and keeps; nothing where reading it is not allowed."""
    with suppress(errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError):
        wanted = ConfigResource(ConfigResourceType.TOPIC, name, [_RETENTION, _BYTES, _SIZE, _POLICY, _TIMESTAMP])
        found = admin.describe_configs([wanted], config_filter="all").get("topic", {}).get(name, {})
        return {key: each["value"] for key, each in found.items()}
    return {}


def _raise_values(admin: KafkaAdminClient, name: str, configuration: Mapping[str, str]) -> None:
    wrong = _wrong_values(_values_of(admin, name), configuration)
    if wrong:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, wrong)])
        _LOG.warning("topic %s would have lost records, or not taken them: set %s", name, _told(wrong))


def _wrong_values(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that a topic needs in place of what was found."""
    wrong = {key for key in (_RETENTION, _SIZE) if key in found and _is_less(found[key], wanted.get(key))}
    if _RETENTION in wanted and "compact" in found.get(_POLICY, "") and wanted[_POLICY] == "delete":
        # What a topic keeps by time and bytes counts from now on, if it was only compacted.
        wrong |= {_POLICY} if "delete" in found[_POLICY] else {_POLICY, _RETENTION, _BYTES}
    if int(wanted.get(_RETENTION, _FOR_EVER)) != _FOR_EVER:
        wrong |= {key for key in (_BYTES, _TIMESTAMP) if key in found and key in wanted and found[key] != wanted[key]}
    return {key: wanted[key] for key in wanted if key in wrong}


def _is_less(found: str, wanted: str | None) -> bool:
    return wanted is not None and int(found) != _FOR_EVER and int(found) < int(wanted)


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
