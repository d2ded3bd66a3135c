"""Looks up the topics at the brokers: their existence, ids, rights and limits."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, ConfigResourceType

from guardian.ports import TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.kafka.client import make_client, text_of, to_transport_error, translated
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.settings import KafkaSettings

DEFAULT_LIMIT = 1_048_588
"""The default of a topic's `max.message.bytes`: bytes of one batch."""

_UNKNOWN = errors.UnknownTopicOrPartitionError
_GRACE_SECONDS = 3
"""How long a missing topic is tolerated: after its creation, or a broker's start, not every broker knows it yet."""


class Topic(NamedTuple):
    """A topic. A recreated topic of the same name has another `topic_id`."""

    name: str
    topic_id: UUID
    partitions: int


class Right(StrEnum):
    """A right on a topic, by the brokers' name for it."""

    READ = "Read"
    WRITE = "Write"


class Topics:
    """Looks up the topics of the settings. `input` is the input topic as last seen.

    `of_outputs` is the right needed on the output topics; commands that only read them need less than the service. `of_input` is
    that on the input topic and on the topic of orders.
    """

    def __init__(self, settings: KafkaSettings, of_outputs: Right = Right.WRITE, of_input: Right = Right.READ) -> None:
        self._settings = settings
        self._of_outputs = of_outputs
        self._of_input = of_input
        self._admin: KafkaAdminClient | None = None
        self._missing_since: float | None = None
        self.input: Topic | None = None

    def look(self) -> Topic:
        """Return the input topic as it is now, after a check that all topics and rights are there.

        Raises:
            TransportWithheld: Topics or rights are missing; the text names all of them.
            TransportRefused: The input topic was recreated.
        """
        described = self._describe()
        withheld = self._withheld(described)
        if withheld:
            self._be_patient(described)
            raise withheld[0] if len(withheld) == 1 else TransportWithheld("the topics", "; ".join(map(str, withheld)))
        self._missing_since = None
        found = described[self._settings.topics.input]
        topic = Topic(self._settings.topics.input, UUID(str(found["topic_id"])), len(found["partitions"]))
        if self.input is not None and self.input.topic_id != topic.topic_id:
            raise recreated(self._settings.topics, self.input.topic_id, topic.topic_id)
        self.input = topic
        return topic

    def find_withheld(self) -> list[TransportWithheld]:
        """Return each missing topic, each missing right and each wrong number of partitions as the brokers report them now."""
        described = self._describe()
        return self._withheld(described) or self._unlike_the_input(described)

    def check_transactions(self) -> None:
        """Check the rights on the transactional id. No error if the brokers cannot be asked or are not ready for it.

        Raises:
            TransportWithheld: A right is missing.
        """
        what = f"transactional id {self._settings.transactional_id}"
        try:
            self._connected().describe_transactions([self._settings.transactional_id])
        except errors.TransactionalIdAuthorizationFailedError as error:
            raise to_transport_error(what, error) from error
        except errors.KafkaError:
            return

    def find(self, name: str) -> Topic:
        """Return one of the topics as it is now. Raises as `look`."""
        self.look()
        found = self._describe()[name]
        return Topic(name, UUID(str(found["topic_id"])), len(found["partitions"]))

    def limits(self, *names: str) -> dict[str, int]:
        """Return the largest batch of each of these topics in bytes; the brokers' default where reading it is not allowed."""
        found = dict.fromkeys(names, DEFAULT_LIMIT)
        with suppress(errors.KafkaError):
            for name, values in self._configurations(*names, key="max.message.bytes").items():
                found[name] = int(values["value"])
        return found

    def ask_whether_compacted(self) -> bool:
        """Return whether the input topic is compacted, which loses envelopes: those of one key do not replace each other."""
        return "compact" in (self.find_setting(self._settings.topics.input, "cleanup.policy") or "")

    def find_setting(self, name: str, key: str) -> str | None:
        """Return a setting of a topic by Kafka's name; None where reading it is not allowed."""
        with suppress(errors.KafkaError):
            for values in self._configurations(name, key=key).values():
                return str(values["value"])
        return None

    def is_there(self, name: str) -> bool:
        """Return whether the brokers know one of the topics, and the user may describe it."""
        return bool(self._describe()[name]["error_code"] != _UNKNOWN.errno)

    def close(self) -> None:
        if self._admin is not None:
            admin, self._admin = self._admin, None
            with translated("closing"):
                admin.close()

    def _connected(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = open_admin(self._settings)
        return self._admin

    def _configurations(self, *names: str, key: str) -> dict[str, Any]:
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, [key]) for name in names]
        found = self._connected().describe_configs(resources, config_filter="all").get("topic", {})
        return {name: values[key] for name, values in found.items() if key in values}

    def _describe(self) -> dict[str, Mapping[str, Any]]:
        """Return the brokers' description of each topic of the settings."""
        admin, names = self._connected(), self._settings.topics.all
        with translated("the topics"):
            found = {each["name"]: each for each in admin.describe_topics([*names])}
        return {name: found.get(name, {"error_code": _UNKNOWN.errno}) for name in names}

    def _withheld(self, described: Mapping[str, Mapping[str, Any]]) -> list[TransportWithheld]:
        return [error for name, found in described.items() if (error := self._find_withheld(name, found)) is not None]

    def _unlike_the_input(self, described: Mapping[str, Mapping[str, Any]]) -> list[TransportWithheld]:
        """Return an error for each topic of orders with another number of partitions than the input: they belong together."""
        topics = self._settings.topics
        count = len(described[topics.input]["partitions"])
        found = {name: len(described[name]["partitions"]) for name in (topics.orders, topics.order_outcomes) if name}
        remedy = f"Give it {count} (kafka-topics --alter; if it has more, delete it and create it again)"
        return [
            TransportWithheld(
                f"topic {name}", f"it has {each} partitions, but the input topic {topics.input} has {count}. {remedy}"
            )
            for name, each in found.items()
            if each != count
        ]

    def _find_withheld(self, name: str, found: Mapping[str, Any]) -> TransportWithheld | None:
        error = errors.for_code(found["error_code"])
        if error is _UNKNOWN:
            return self._missing(name)
        if error is errors.TopicAuthorizationFailedError:
            return self._not_allowed(name, "describe")
        if error is not errors.NoError:
            raise to_transport_error(f"topic {name}", error(name))
        allowed, needed = found.get("authorized_operations"), self._needed(name)
        return self._not_allowed(name, needed.lower()) if allowed and needed.upper() not in allowed else None

    def _be_patient(self, described: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise TransportUnavailable while an unknown topic may still become known."""
        unknown = [name for name, found in described.items() if found["error_code"] == _UNKNOWN.errno]
        if not unknown:
            return
        now = monotonic()
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since < _GRACE_SECONDS:
            raise TransportUnavailable(f"topic {', '.join(unknown)}: the brokers do not know it yet; waiting for it")

    def _needed(self, name: str) -> Right:
        is_read = name in (self._settings.topics.input, self._settings.topics.orders)
        return self._of_input if is_read else self._of_outputs

    def _not_allowed(self, name: str, wish: str) -> TransportWithheld:
        topics = self._settings.topics
        which = {topics.input: "the input topic", topics.orders: "the orders topic"}.get(name, "the outputs")
        return TransportWithheld(
            f"topic {name}", f"no right to {wish} it. Give the user {self._needed(name)} and Describe on {which}"
        )

    def _missing(self, name: str) -> TransportWithheld:
        topics = self._settings.topics
        role = "topic that is read" if name in (topics.input, topics.orders) else "output topic"
        remedy = "Create it (kafka-topics --create) with the number of partitions that it will keep, or configure another one"
        return TransportWithheld(f"topic {name}", f"this {role} does not exist, or the user may not describe it. {remedy}")


def recreated(topics: KafkaTopics, old: UUID, new: UUID) -> TransportRefused:
    """Return the error for positions and state that belong to a deleted input topic of the same name."""
    if topics.values:
        given_up, remedy = "what was counted", f"delete the topic {topics.values}, which is made again"
    else:
        given_up = "the waiting envelopes"
        remedy = "set another payment-status-notification.storage.namespace (embedded: another file)"
    problem = (
        f"it was deleted and created again: positions and state belong to the topic with id {old}, its id is now {new}. To start "
        f"with the new topic and give up {given_up}, delete the group's offsets (kafka-consumer-groups --delete-offsets) and "
        f"{remedy}"
    )
    return TransportRefused(f"topic {topics.input}", problem)


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
    their records is an operator's. Nothing else of them is changed: an operator may have set it.

    Raises:
        TransportUnavailable: The brokers do not answer, or do not know `like` yet.
        TransportRefused: They cannot be made or changed; the text says how an operator does it.
    """
    with closing(open_admin(settings)) as admin, translated("the topics"):
        found = {each["name"]: each for each in admin.describe_topics([like, *wanted])}
        if _code_of(found, like) == _UNKNOWN_TOPIC:
            raise TransportUnavailable(f"topic {like} does not exist: create it with the number of partitions that it will keep")
        pattern = found[like]["partitions"]
        size = {_SIZE: str(_limit_of(admin, like) + _HEADERS_BYTES)}
        for name, given in wanted.items():
            configuration = {**given, **size}
            with _repairable(name, len(pattern), configuration), suppress(errors.TopicAlreadyExistsError):
                if _code_of(found, name) == _UNKNOWN_TOPIC:
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


_UNKNOWN_TOPIC = errors.UnknownTopicOrPartitionError.errno


def _code_of(found: Mapping[str, Mapping[str, int]], name: str) -> int:
    return found[name]["error_code"] if name in found else _UNKNOWN_TOPIC


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
        _LOG.warning("topic %s would have lost records, or not taken them: set %s", name, _listed(wrong))


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
    values = _listed(configuration)
    remedy = f"Give the user the rights to create and alter it, or create it with {partitions} partitions and {values}"
    try:
        yield
    except (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError) as error:
        raise TransportWithheld(f"topic {name}", f"{text_of(error)}. {remedy}") from error
    except (errors.InvalidTopicError, errors.PolicyViolationError, errors.InvalidConfigurationError) as error:
        raise TransportRefused(f"topic {name}", f"{text_of(error)}. {remedy}") from error


def _listed(configuration: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in configuration.items())
