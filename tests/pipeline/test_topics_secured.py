"""Topics of a broker that asks who comes, read as the service's configuration says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from pyspark.sql import SparkSession

from connectors.kafka_options import read_options
from pipeline.java_client import java_options
from pipeline.topics import read_topic
from servers.kafka import KafkaServer, KafkaSettings

USER, PASSWORD, TOPIC = "reader", "correct horse", "guarded"


@pytest.fixture
def broker(own_server: Callable[..., Any]) -> KafkaServer:
    server: KafkaServer = own_server(KafkaServer, KafkaSettings(tls=True, users={USER: PASSWORD})).start()
    server.create_topics(TOPIC, partitions=1)
    pattern = ResourcePattern(ResourceType.TOPIC, TOPIC, ACLResourcePatternType.LITERAL)
    with server.admin() as admin:
        admin.create_acls([ACL(f"User:{USER}", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    with KafkaProducer(bootstrap_servers=server.bootstrap) as producer:
        producer.send(TOPIC, b"secret").get(timeout=60)
    return server


def test_tls_and_a_login_are_those_of_the_service(spark: SparkSession, broker: KafkaServer) -> None:
    given = {
        "bootstrap.servers": broker.sasl_tls_bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(broker.certificates.authority),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    options, problems, _ = read_options(given, {})
    assert problems == []
    found = read_topic(spark, java_options(options.consumer), TOPIC).collect()
    assert [bytes(row.value) for row in found] == [b"secret"]
