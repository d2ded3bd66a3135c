"""Translates options of Kafka's clients, by the names that Kafka gives them, into options of kafka-python. Pure.

Options that would break the protocol are refused with the reason. Unknown options are refused too: they may be mistyped.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

import msgspec

from guardian.ports import Channel

Given: TypeAlias = Mapping[str, Any]
"""Options by Kafka's names; the values are texts, numbers and booleans."""


class Problem(NamedTuple):
    """A refused option. `text` has the reason, and what to do."""

    option: str
    text: str


class _Refused(ValueError):
    """Why a value is refused."""


class _Option(NamedTuple):
    ours: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Refused("expected: a text")
    return value  # Returned as it is: a secret keeps its class.


def _number(minimum: int, maximum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise _Refused(f"expected: a whole number from {minimum} to {maximum}")
        return value

    return read


def _choice(**choices: Any) -> Callable[[Any], Any]:
    """Return a reader that maps names to values. Names are compared without case, with `_` for `-`, `.` and a blank."""

    def read(value: Any) -> Any:
        name = re.sub(r"[-. ]", "_", str(value)).lower()
        if name not in choices:
            raise _Refused(f"expected: one of {', '.join(name.replace('_', '-') or '(empty)' for name in choices)}")
        return choices[name]

    return read


def _verbatim(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if str(value).upper() not in choices:
            raise _Refused(f"expected: one of {', '.join(choices)}")
        return str(value).upper()

    return read


def _beginning(value: Any) -> bool:
    if value not in ("earliest", "none"):
        raise _Refused("expected: earliest or none; latest would skip the records sent before the service started")
    return bool(value == "earliest")


_MS = _number(1, 86_400_000)
_BYTES = _number(1, 1 << 30)
_FLAG = _choice(true=True, false=False)
_HOSTNAME = _choice(**{"https": True, "": False, "none": False})

_CONNECTION: Mapping[str, _Option] = {
    "bootstrap.servers": _Option("bootstrap_servers", _text),
    "client.id": _Option("client_id", _text),
    "client.dns.lookup": _Option("client_dns_lookup", _text),
    "connections.max.idle.ms": _Option("connections_max_idle_ms", _MS),
    "metadata.max.age.ms": _Option("metadata_max_age_ms", _MS),
    "receive.buffer.bytes": _Option("receive_buffer_bytes", _BYTES),
    "reconnect.backoff.max.ms": _Option("reconnect_backoff_max_ms", _MS),
    "reconnect.backoff.ms": _Option("reconnect_backoff_ms", _MS),
    "request.timeout.ms": _Option("request_timeout_ms", _MS),
    "retry.backoff.ms": _Option("retry_backoff_ms", _MS),
    "send.buffer.bytes": _Option("send_buffer_bytes", _BYTES),
    "security.protocol": _Option("security_protocol", _verbatim("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "sasl.mechanism": _Option("sasl_mechanism", _verbatim("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    "sasl.username": _Option("sasl_plain_username", _text),
    "sasl.password": _Option("sasl_plain_password", _text),
    "ssl.cafile": _Option("ssl_cafile", _text),
    "ssl.ca.location": _Option("ssl_cafile", _text),
    "ssl.truststore.location": _Option("ssl_cafile", _text),
    "ssl.certfile": _Option("ssl_certfile", _text),
    "ssl.certificate.location": _Option("ssl_certfile", _text),
    "ssl.keystore.location": _Option("ssl_certfile", _text),
    "ssl.keyfile": _Option("ssl_keyfile", _text),
    "ssl.key.location": _Option("ssl_keyfile", _text),
    "ssl.key.password": _Option("ssl_password", _text),
    "ssl.cipher.suites": _Option("ssl_ciphers", _text),
    "ssl.crlfile": _Option("ssl_crlfile", _text),
    "ssl.endpoint.identification.algorithm": _Option("ssl_check_hostname", _HOSTNAME),
}
"""The options of all clients of the service. A trust store or key store is the path of a PEM file."""

_CONSUMER: Mapping[str, _Option] = {
    "check.crcs": _Option("check_crcs", _FLAG),
    "client.rack": _Option("client_rack", _text),
    "default.api.timeout.ms": _Option("call_timeout_ms", _number(1_000, 20_000)),
    "fetch.max.bytes": _Option("fetch_max_bytes", _BYTES),
    "fetch.max.wait.ms": _Option("fetch_max_wait_ms", _MS),
    "fetch.min.bytes": _Option("fetch_min_bytes", _BYTES),
    "group.id": _Option("group_id", _text),
    "group.instance.id": _Option("group_instance_id", _text),
    "heartbeat.interval.ms": _Option("heartbeat_interval_ms", _MS),
    "max.partition.fetch.bytes": _Option("max_partition_fetch_bytes", _BYTES),
    "max.poll.interval.ms": _Option("max_poll_interval_ms", _MS),
    "session.timeout.ms": _Option("session_timeout_ms", _MS),
    "auto.offset.reset": _Option("begins_at_earliest", _beginning),
}

_PRODUCER: Mapping[str, _Option] = {
    "batch.size": _Option("batch_size", _BYTES),
    "compression.type": _Option("compression_type", _choice(none=None, gzip="gzip", snappy="snappy", lz4="lz4", zstd="zstd")),
    "delivery.timeout.ms": _Option("delivery_timeout_ms", _MS),
    "linger.ms": _Option("linger_ms", _number(0, 60_000)),
    "max.block.ms": _Option("max_block_ms", _number(1_000, 20_000)),
    "max.request.size": _Option("max_request_size", _BYTES),
    "transaction.timeout.ms": _Option("transaction_timeout_ms", _number(1_000, 15_000)),
}

_OURS: Mapping[str, tuple[str, str]] = {
    "acks": ("all", "a notification that only one broker has is lost with that broker"),
    "allow.auto.create.topics": ("false", "a mistyped topic would be created instead of refused"),
    "enable.auto.commit": ("false", "offsets are committed together with the notifications, in one transaction"),
    "enable.idempotence": ("true", "without it a retry may send a notification twice"),
    "group.protocol": ("classic", "kafka-python supports no other"),
    "isolation.level": ("read_committed", "records of aborted transactions must not be read, nor undecided positions"),
    "ssl.keystore.type": ("pem", "convert the store: openssl pkcs12 -in store.p12 -out store.pem -noenc"),
    "ssl.truststore.type": ("pem", "convert the store: keytool -exportcert -rfc"),
}
"""Options with a fixed value, and the reason; setting exactly this value is allowed."""

_NEVER: Mapping[str, str] = {
    "auto.commit.interval.ms": "offsets are committed together with the notifications, in one transaction",
    "interceptor.classes": "Java classes cannot run here",
    "key.deserializer": "records are read as bytes",
    "key.serializer": "records are sent as bytes",
    "max.in.flight.requests.per.connection": "the order of the notifications depends on it",
    "max.poll.records": "set ipf.processing-data.ingress.batch-size instead",
    "partition.assignment.strategy": "it is always cooperative-sticky",
    "partitioner.class": "the key decides the partition, as in every Kafka client",
    "retries": "transaction.timeout.ms bounds them",
    "ssl.keystore.password": "a PEM file has none; set ssl.key.password for the password of its key",
    "ssl.truststore.password": "a PEM file has none",
    "transactional.id": "it must be unique per worker: the service makes it of the group and the run directory",
    "value.deserializer": "records are read as bytes",
    "value.serializer": "records are sent as bytes",
}

_JAAS = re.compile(
    r'\s*[\w.]+\s+required\b(?=.*\busername="(?P<username>[^"]*)")(?=.*\bpassword="(?P<password>[^"]*)").*;\s*', re.DOTALL
)


class ClientOptions(NamedTuple):
    """The options of kafka-python for both clients, without those that the transport itself adds."""

    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]


def read_options(consumer: Given, producer: Given) -> tuple[ClientOptions, list[Problem], list[Problem]]:
    """Translate the options of consumer and producer; return them with the problems of each.

    The producer inherits the consumer's connection options: a transaction spans both, so both use one cluster.
    """
    read_consumer, consumer_problems = _read(consumer, {**_CONNECTION, **_CONSUMER})
    read_producer, producer_problems = _read(producer, {**_CONNECTION, **_PRODUCER})
    own = read_producer.get("bootstrap_servers", read_consumer.get("bootstrap_servers"))
    if own != read_consumer.get("bootstrap_servers"):
        text = "a transaction also carries the consumer's offsets, so both use the cluster of the consumer's bootstrap.servers"
        producer_problems.append(Problem("bootstrap.servers", f"it differs from the consumer's; {text}"))
    shared = {option.ours for option in _CONNECTION.values()} - {"client_id"}
    inherited = {name: value for name, value in read_consumer.items() if name in shared}
    return ClientOptions(read_consumer, inherited | read_producer), consumer_problems, producer_problems


def _read(given: Given, known: Mapping[str, _Option]) -> tuple[dict[str, Any], list[Problem]]:
    read: dict[str, Any] = {}
    problems = []
    for name, value in _without_jaas(given):
        try:
            if name in known:
                read[known[name].ours] = known[name].read(value)
            else:
                _refuse(name, value, known)
        except _Refused as error:
            problems.append(Problem(name, str(error)))
    if "ssl_certfile" in read:
        read.setdefault("ssl_keyfile", read["ssl_certfile"])
    return read, problems


def _without_jaas(given: Given) -> Iterator[tuple[str, Any]]:
    """Yield the options with Java's form of user and password replaced by `sasl.username` and `sasl.password`."""
    for name, value in given.items():
        match = _JAAS.fullmatch(value) if name == "sasl.jaas.config" and isinstance(value, str) else None
        if match is None:
            yield name, value
        else:
            yield "sasl.username", match["username"]
            yield "sasl.password", type(value)(match["password"])


def _refuse(name: str, value: Any, known: Mapping[str, _Option]) -> None:
    if name in _OURS:
        always, why = _OURS[name]
        if str(value).lower() not in (always, "-1" if name == "acks" else always):
            raise _Refused(f"it is always {always}: {why}")
        return
    if name in _NEVER:
        raise _Refused(f"it must not be set: {_NEVER[name]}")
    if name == "sasl.jaas.config":
        raise _Refused('give sasl.username and sasl.password, or a login module with username="…" and password="…"')
    nearest = get_close_matches(name, [*known, *_OURS], 1, 0.7)
    raise _Refused("the service does not know this option" + (f"; the nearest is {nearest[0]}" if nearest else ""))


_FIELDS = {
    Channel.NOTIFICATIONS: "notifications",
    Channel.DEAD_LETTERS: "dead_letters",
    Channel.ORDER_OUTCOMES: "order_outcomes",
    Channel.FACTS: "facts",
    Channel.VALUES: "values",
}


KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""The configuration of a topic that loses no record, whatever brokers do by default."""


class KafkaTopics(msgspec.Struct, frozen=True):
    """The input topic, the output topics, the topics of orders and of facts, and the topic of a store's values.

    All but the first three are empty where there is no such topic. `reports` are those on groups, for programs that copy or judge
    what all of a service has written.
    """

    input: str
    notifications: str
    dead_letters: str
    orders: str = ""
    order_outcomes: str = ""
    facts: str = ""
    values: str = ""
    reports: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        optional = (self.orders, self.order_outcomes, self.facts, self.values, self.reports)
        return tuple(dict.fromkeys(name for name in (self.input, self.notifications, self.dead_letters, *optional) if name))

    def output(self, channel: Channel) -> str:
        """Return the topic of a channel; empty if there is none for it."""
        topic: str = getattr(self, _FIELDS[channel])
        return topic

    def without_facts(self) -> "KafkaTopics":
        """Return the other topics."""
        return msgspec.structs.replace(self, facts="")
