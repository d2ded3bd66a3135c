"""Topics of a broker with logins and rights, read with the service's configuration by a user with only read rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from harness.spark.archived_topics import ArchivedTopics, rows_of
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from pyspark.sql import SparkSession

from notification_service.jobs.audit.scopes import topics_scope
from notification_service.jobs.spark.session import java_options
from notification_service.jobs.spark.topics import read_topic
from servers.kafka import KafkaServer, KafkaSettings
from tests.notification_service.connectors.kafka.stage import KafkaStage

USER, PASSWORD = "reader", "correct horse"


@pytest.fixture
def topics(spark: SparkSession, server_directory: Path, tmp_path: Path) -> Iterator[ArchivedTopics]:
    """The topics of the stage, as the user with read rights sees them."""
    server = KafkaServer(server_directory / f"own-{uuid4().hex}", KafkaSettings(tls=True, users={USER: PASSWORD})).start()
    stage = KafkaStage(server)
    rights = [allow(ResourceType.TOPIC, topic, ACLOperation.READ) for topic in stage.topics.all]
    with server.admin() as admin:
        admin.create_acls([*rights, allow(ResourceType.GROUP, stage.group, ACLOperation.DESCRIBE)])
    given = {
        "bootstrap.servers": server.sasl_tls_bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(server.certificates.authority),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    yield ArchivedTopics(spark, stage, str(tmp_path / "archive"), given)
    stage.close()
    server.kill()


def allow(kind: ResourceType, name: str, operation: ACLOperation) -> ACL:
    pattern = ResourcePattern(kind, name, ACLResourcePatternType.LITERAL)
    return ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, pattern)


def test_they_are_read_archived_and_audited_with_the_login_of_the_service(topics: ArchivedTopics) -> None:
    stage = topics.stage
    stage.send(b"secret")
    stage.set_position(stage.partitions[0], 1)
    found = read_topic(topics.spark, java_options(topics.kafka.consumer), stage.topics.input)
    assert rows_of(found.collect()) == topics.held(stage.topics.input) != []
    assert topics_scope(topics.spark, topics.kafka, lambda _: None).settled == {0: 1}
    assert topics.archive() == 1
    topics.assert_archived()
    assert topics.snapshot().positions == {0: 1}
