"""Translates the service's Kafka options into those of the Java client, which Spark's connector uses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resequencer.errors import ConfigurationError

_SAME = {
    "bootstrap_servers": "bootstrap.servers",
    "client_dns_lookup": "client.dns.lookup",
    "client_rack": "client.rack",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "receive_buffer_bytes": "receive.buffer.bytes",
    "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
    "reconnect_backoff_ms": "reconnect.backoff.ms",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_password": "ssl.key.password",
}
_FILES = {
    "ssl_cafile": ("ssl.truststore.type", "ssl.truststore.certificates"),
    "ssl_certfile": ("ssl.keystore.type", "ssl.keystore.certificate.chain"),
    "ssl_keyfile": ("ssl.keystore.type", "ssl.keystore.key"),
}
_CLASSES = {"PLAIN": "plain.PlainLoginModule"}


def java_options(consumer: Mapping[str, Any]) -> dict[str, str]:
    """Return the Java client's options. `consumer` holds options by kafka-python's names, as `KafkaSettings` does.

    Certificates are passed by content, because tasks on other machines may not have the files.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    options = {theirs: str(consumer[ours]) for ours, theirs in _SAME.items() if consumer.get(ours) is not None}
    for ours, (kind, theirs) in _FILES.items():
        if consumer.get(ours) is not None:
            options |= {kind: "PEM", theirs: _read(str(consumer[ours]))}
    if consumer.get("ssl_check_hostname") is False:
        options["ssl.endpoint.identification.algorithm"] = ""
    if consumer.get("sasl_plain_username") is not None:
        options["sasl.jaas.config"] = _login(consumer)
    return options


def _login(consumer: Mapping[str, Any]) -> str:
    module = _CLASSES.get(str(consumer.get("sasl_mechanism")), "scram.ScramLoginModule")
    given = {"username": consumer["sasl_plain_username"], "password": consumer.get("sasl_plain_password", "")}
    told = " ".join(f'{name}="{_escaped(str(value))}"' for name, value in given.items())
    return f"org.apache.kafka.common.security.{module} required {told};"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(path, f"cannot be read as a PEM file: {error}") from error
