"""Options of Kafka's clients by Kafka's names: how they are translated, and which are refused and why."""

from collections.abc import Mapping
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.settings import KafkaSettings

CONSUMER = {"bootstrap.servers": "a:1, b:2", "group.id": "g"}


class Hidden(str):
    """Stands for a secret, whose text is not shown."""

    def __repr__(self) -> str:
        return "***"


def problems_of(consumer: Mapping[str, Any] = {}, producer: Mapping[str, Any] = {}) -> dict[str, str]:
    _, *problems = read_options({**CONSUMER, **consumer}, producer)
    return {problem.option: problem.text for each in problems for problem in each}


def settings_of(consumer: Mapping[str, Any] = {}, producer: Mapping[str, Any] = {}) -> KafkaSettings:
    options, *problems = read_options({**CONSUMER, **consumer}, producer)
    assert problems == [[], []]
    return KafkaSettings.make(KafkaTopics("in", "out", "dead"), options, "worker-0", 1 << 20)


def test_what_is_given_by_kafkas_names_is_given_to_the_clients_by_theirs() -> None:
    settings = settings_of(
        {"session.timeout.ms": "12000", "fetch.max.wait.ms": 250}, {"compression.type": "zstd", "client.id": "c"}
    )
    assert settings.consumer["bootstrap_servers"] == "a:1, b:2"
    assert settings.consumer["session_timeout_ms"] == 12_000
    assert settings.consumer["fetch_max_wait_ms"] == 250
    assert (settings.producer["compression_type"], settings.producer["client_id"]) == ("zstd", "c")
    assert "client_id" not in settings.consumer


def test_whatever_becomes_of_the_options_is_known_to_the_clients() -> None:
    settings = settings_of({"default.api.timeout.ms": 3_000, "auto.offset.reset": "none"}, {"transaction.timeout.ms": 4_000})
    assert settings.consumer.keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert settings.producer.keys() <= KafkaProducer.DEFAULT_CONFIG.keys()
    assert (settings.call_timeout_ms, settings.transaction_timeout_ms, settings.begins_at_earliest) == (3_000, 4_000, False)


def test_what_the_protocol_needs_is_so_whatever_is_given() -> None:
    settings = settings_of({"enable.auto.commit": False, "isolation.level": "read_committed"}, {"acks": "all"})
    assert settings.consumer["enable_auto_commit"] is False
    assert settings.consumer["isolation_level"] == "read_committed"
    assert settings.consumer["auto_offset_reset"] == "none"
    assert settings.producer["transactional_id"] == "worker-0"
    assert settings.producer["acks"] == -1


def test_how_to_connect_is_taken_over_by_the_producer() -> None:
    secure = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": Hidden("p"),
    }
    producer = settings_of({**secure, "ssl.truststore.location": "ca.pem", "fetch.min.bytes": 2}).producer
    assert producer["security_protocol"] == "SASL_SSL"
    assert (producer["sasl_plain_username"], producer["ssl_cafile"]) == ("u", "ca.pem")
    assert repr(producer["sasl_plain_password"]) == "***"
    assert "fetch_min_bytes" not in producer
    assert "group_id" not in producer


def test_a_key_store_in_one_file_holds_the_certificate_and_its_key() -> None:
    assert settings_of({"ssl.keystore.location": "both.pem"}).consumer["ssl_keyfile"] == "both.pem"
    two = settings_of({"ssl.certificate.location": "c.pem", "ssl.key.location": "k.pem"}).consumer
    assert (two["ssl_certfile"], two["ssl_keyfile"]) == ("c.pem", "k.pem")


def test_javas_login_module_gives_user_and_password_and_stays_hidden() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u 1" password="p;=1";'
    consumer = settings_of({"sasl.jaas.config": Hidden(jaas)}).consumer
    assert (consumer["sasl_plain_username"], consumer["sasl_plain_password"]) == ("u 1", "p;=1")
    assert repr(consumer["sasl_plain_password"]) == "***"


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("enable.auto.commit", True, "it is always false: offsets are committed together with the notifications"),
        ("isolation.level", "read_uncommitted", "it is always read_committed"),
        ("max.poll.records", 5, "it must not be set: set ipf.processing-data.ingress.batch-size instead"),
        ("partition.assignment.strategy", "range", "it must not be set: it is always cooperative-sticky"),
        ("auto.offset.reset", "latest", "expected: earliest or none; latest would skip the records sent"),
        ("session.timeout.ms", "10s", "expected: a whole number from 1 to 86400000"),
        ("session.timout.ms", 1, "the service does not know this option; the nearest is session.timeout.ms"),
        ("ssl.truststore.type", "JKS", "it is always pem: convert the store"),
        ("sasl.mechanism", "GSSAPI", "expected: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("sasl.jaas.config", "kerberos", "give sasl.username and sasl.password"),
        ("group.protocol", "consumer", "it is always classic"),
    ],
)
def test_what_would_break_the_protocol_or_is_not_known_is_refused(option: str, value: object, reason: str) -> None:
    assert problems_of({option: value})[option].startswith(reason)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("acks", 1, "it is always all: a notification that only one broker has is lost with that broker"),
        ("enable.idempotence", "false", "it is always true"),
        ("transactional.id", "mine", "it must not be set: it must be unique per worker"),
        (
            "bootstrap.servers",
            "elsewhere:1",
            "it differs from the consumer's; a transaction also carries the consumer's offsets",
        ),
        ("group.id", "g", "the service does not know this option"),
        ("compression.type", "brotli", "expected: one of none, gzip, snappy, lz4, zstd"),
    ],
)
def test_the_same_for_the_producer(option: str, value: object, reason: str) -> None:
    assert problems_of(producer={option: value})[option].startswith(reason)


def test_all_problems_are_told_at_once() -> None:
    assert problems_of({"a": 1, "enable.auto.commit": True}, {"acks": 0}).keys() == {"a", "enable.auto.commit", "acks"}
