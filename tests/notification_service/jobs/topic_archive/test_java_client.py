"""The service's Kafka options, translated for the Java client."""

from pathlib import Path

import pytest

from notification_service.connectors.kafka.core.client_options import read_options
from notification_service.jobs.spark.session import java_options
from resequencer.errors import ConfigurationError

BROKERS = {"bootstrap.servers": "kafka-1:9093,kafka-2:9093"}


def java(**given: object) -> dict[str, str]:
    options, *problems = read_options(BROKERS | {name.replace("_", "."): value for name, value in given.items()}, {})
    assert not any(problems)
    return java_options(options.consumer)


def test_a_plain_connection_needs_the_brokers_only() -> None:
    assert java(group_id="g", session_timeout_ms=6_000) == {"bootstrap.servers": "kafka-1:9093,kafka-2:9093"}


def test_a_login_becomes_a_module_of_java() -> None:
    given = java(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="me", sasl_password='a"b\\c')
    assert given["security.protocol"] == "SASL_SSL"
    assert given["sasl.mechanism"] == "SCRAM-SHA-512"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert given["sasl.jaas.config"] == f'{module} required username="me" password="a\\"b\\\\c";'
    plain = java(sasl_mechanism="PLAIN", sasl_username="me", sasl_password="x")
    assert "plain.PlainLoginModule" in plain["sasl.jaas.config"]


def test_certificates_are_handed_over_themselves_for_they_are_read_on_other_machines_too(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}")
    given = java(ssl_cafile=str(tmp_path / "ca"), ssl_certfile=str(tmp_path / "certificate"), ssl_keyfile=str(tmp_path / "key"))
    assert given["ssl.truststore.type"] == given["ssl.keystore.type"] == "PEM"
    assert given["ssl.truststore.certificates"] == "-----BEGIN ca"
    assert given["ssl.keystore.certificate.chain"] == "-----BEGIN certificate"
    assert given["ssl.keystore.key"] == "-----BEGIN key"


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.pem: cannot be read"):
        java(ssl_cafile=str(tmp_path / "nowhere.pem"))


def test_names_in_certificates_are_compared_unless_that_is_switched_off() -> None:
    assert "ssl.endpoint.identification.algorithm" not in java()
    assert java(ssl_endpoint_identification_algorithm="")["ssl.endpoint.identification.algorithm"] == ""
