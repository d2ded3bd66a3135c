"""TLS, SASL/SCRAM and rights against a real broker that requires all of them."""

import gc
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from harness.waiting import wait_until
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

from guardian.ports import Channel, OutputRecord, TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.bridge.kafka_start import KafkaStart
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.preflight import preflight, preflight_start, preflight_topics
from notification_service.connectors.kafka.settings import KafkaSettings as ClientSettings
from notification_service.connectors.kafka.sink import KafkaTransport
from notification_service.connectors.kafka.topic_ends import TopicEnds, TopicEndsReader
from notification_service.connectors.line_format import Line
from notification_service.delivery.published_topics import SinglePublisher
from servers.kafka import KafkaServer, KafkaSettings
from tests.notification_service.connectors.kafka.stage import KafkaStage, KafkaWorker, notification, values_of

pytestmark = pytest.mark.slow

APP, PASSWORD = "app", "correct horse"


@pytest.fixture(scope="module")
def broker(server_directory: Path) -> Iterator[KafkaServer]:
    server = KafkaServer(server_directory / f"own-{uuid4().hex}", KafkaSettings(tls=True, users={APP: PASSWORD}))
    yield server.start()
    server.kill()


@pytest.fixture
def stage(broker: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(broker)
    yield stage
    stage.close()


def all_rights(stage: KafkaStage) -> list[ACL]:
    return [
        allow(ResourceType.TOPIC, stage.topics.input, ACLOperation.READ),
        allow(ResourceType.TOPIC, stage.topics.notifications, ACLOperation.WRITE),
        allow(ResourceType.TOPIC, stage.topics.dead_letters, ACLOperation.WRITE),
        allow(ResourceType.GROUP, stage.group, ACLOperation.READ),
        allow(ResourceType.TRANSACTIONAL_ID, stage.group, ACLOperation.WRITE, prefix=True),
        allow(ResourceType.TRANSACTIONAL_ID, stage.group, ACLOperation.DESCRIBE, prefix=True),
    ]


def allow(kind: ResourceType, name: str, operation: ACLOperation, *, prefix: bool = False) -> ACL:
    pattern = ACLResourcePatternType.PREFIXED if prefix else ACLResourcePatternType.LITERAL
    return ACL(f"User:{APP}", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))


def grant(stage: KafkaStage, rights: Sequence[ACL]) -> None:
    with stage.kafka.admin() as admin:
        admin.create_acls(rights)


def rights_to_look(stage: KafkaStage) -> list[ACL]:
    topics = [allow(ResourceType.TOPIC, topic, ACLOperation.READ) for topic in stage.topics.all]
    return [*topics, allow(ResourceType.GROUP, stage.group, ACLOperation.DESCRIBE)]


def secured(stage: KafkaStage, **given: object) -> KafkaWorker:
    """A worker that connects to the listener with all checks."""
    return stage.worker(consumer=options(stage) | {name.replace("_", "."): value for name, value in given.items()})


def options(stage: KafkaStage) -> dict[str, object]:
    return {
        "bootstrap.servers": stage.kafka.sasl_tls_bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(stage.kafka.certificates.authority),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": APP,
        "sasl.password": PASSWORD,
        "default.api.timeout.ms": 20_000,
    }


def refusal(worker: KafkaWorker) -> TransportRefused:
    return wait_until(lambda: _refused(worker), "the refusal")


def topic_ends(settings: ClientSettings) -> TopicEnds | str:
    """Return the ends of the topic, or the reason why there are none; the broker may not know new rights yet."""
    with closing(TopicEndsReader(settings)) as reader:
        try:
            return reader.look()
        except (TransportRefused, TransportUnavailable) as error:
            return str(error)


def _refused(worker: KafkaWorker) -> TransportRefused | None:
    try:
        worker.poll()
        for each in worker.read_to:
            worker.publish(each, notification(1, b"a"))
    except TransportRefused as error:
        return error
    except TransportUnavailable:
        return None
    return None


def test_a_worker_reads_and_publishes_over_tls_with_scram_and_no_more_rights_than_it_needs(stage: KafkaStage) -> None:
    grant(stage, all_rights(stage))
    stage.send(b"a")
    worker = secured(stage)
    stage.poll_until(lambda: worker.records, "the record", worker)
    worker.publish(stage.partitions[0], notification(1, b"published"))
    assert worker.values() == [b"a"]
    assert values_of(stage.outputs()) == [b"published"]


def test_tls_alone_and_scram_alone_do_as_well(stage: KafkaStage, broker: KafkaServer) -> None:
    grant(stage, all_rights(stage))
    plain = {"security_protocol": "SASL_PLAINTEXT", "bootstrap_servers": broker.sasl_bootstrap}
    stage.settle(secured(stage, **plain))


def test_a_right_that_is_taken_away_and_given_again_is_waited_for(stage: KafkaStage) -> None:
    grant(stage, all_rights(stage))
    stage.send(b"before")
    worker = secured(stage)
    stage.poll_until(lambda: worker.records, "the record", worker)
    (right,) = [each for each in all_rights(stage) if each.resource_pattern.resource_type is ResourceType.GROUP]
    with stage.kafka.admin() as admin:
        admin.delete_acls([right])
    error = refusal(worker)
    assert isinstance(error, TransportWithheld)
    assert "Give the user Read on the group group.id" in error.problem
    grant(stage, [right])
    stage.send(b"after")
    wait_until(lambda: _refused(worker) is None and worker.values() == [b"before", b"after"], "the other record")


def test_a_wrong_password_is_named_as_what_it_may_be_and_not_told(stage: KafkaStage) -> None:
    """The client drops the broker's answer, and the broker closes the connection."""
    with pytest.raises(TransportUnavailable, match=r"check security.protocol, sasl.mechanism, sasl.username and") as caught:
        secured(stage, sasl_password="battery staple", default_api_timeout_ms=3_000).poll()
    assert "battery" not in str(caught.value)


def test_a_broker_that_cannot_be_trusted_is_refused(stage: KafkaStage, tmp_path: Path) -> None:
    other = KafkaServer(tmp_path / "other", KafkaSettings(tls=True)).certificates.authority
    error = refusal(secured(stage, ssl_truststore_location=str(other)))
    assert "certificate verify failed" in error.problem
    assert "Check ssl.truststore.location" in error.problem


def test_a_handshake_that_fails_leaves_no_socket_behind(stage: KafkaStage, tmp_path: Path) -> None:
    other = KafkaServer(tmp_path / "other", KafkaSettings(tls=True)).certificates.authority
    gc.disable()
    try:
        before = _sockets()
        refusal(secured(stage, ssl_truststore_location=str(other)))
        wait_until(lambda: _sockets() <= before, "the sockets to be closed")
    finally:
        gc.enable()


def _sockets() -> int:
    # By type: `isinstance` would ask what a weak proxy refers to, which may be gone.
    return sum(issubclass(type(each), socket.socket) and each.fileno() >= 0 for each in gc.get_objects())


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (0, "Give the user Read and Describe on the input topic"),
        (1, "Write and Describe on the outputs"),
        (3, "Give the user Read on the group group.id"),
        (4, "Give the user Write and Describe on the transactional ids"),
    ],
)
def test_a_right_that_is_missing_is_named(stage: KafkaStage, missing: int, reason: str) -> None:
    rights = all_rights(stage)
    del rights[missing]
    if missing == 4:
        rights.pop()
    grant(stage, rights)
    assert reason in str(refusal(secured(stage)))


def test_without_the_right_to_write_facts_their_topic_is_named(broker: KafkaServer) -> None:
    stage = KafkaStage(broker, has_facts=True)
    grant(stage, all_rights(stage))
    (withheld,) = refused_by_preflight(stage)
    assert withheld.what == f"topic {stage.topics.facts}"
    assert "Write and Describe on the outputs" in withheld.problem
    grant(stage, [allow(ResourceType.TOPIC, stage.topics.facts, ACLOperation.WRITE)])
    wait_until(lambda: not refused_by_preflight(stage), "the right")
    worker = secured(stage)
    stage.settle(worker)
    worker.publish(stage.partitions[0], OutputRecord(1, Channel.FACTS, b"group", (), b"{}"))
    assert values_of(stage.outputs(Channel.FACTS)) == [b"{}"]
    stage.close()


def refused_by_preflight(stage: KafkaStage) -> Sequence[TransportWithheld]:
    try:
        preflight(secured(stage).settings)
    except ExceptionGroup as group:
        return [each for each in group.exceptions if isinstance(each, TransportWithheld)]
    return []


def test_a_topic_that_may_be_looked_at_but_not_read_is_refused(stage: KafkaStage) -> None:
    rights = [allow(ResourceType.TOPIC, stage.topics.input, ACLOperation.DESCRIBE), *all_rights(stage)[1:]]
    grant(stage, rights)
    error = refusal(secured(stage))
    assert error.what == f"topic {stage.topics.input}"
    assert "no right to read it. Give the user Read and Describe on the input topic" in error.problem


@pytest.mark.parametrize("may_read", [False, True])
def test_to_publish_to_a_topic_together_with_its_offset_one_has_to_read_it(stage: KafkaStage, may_read: bool) -> None:
    topic, group = stage.topics.notifications, f"{stage.group}-progress"
    rights = [
        allow(ResourceType.TOPIC, topic, ACLOperation.WRITE),
        allow(ResourceType.GROUP, group, ACLOperation.READ),
        allow(ResourceType.TRANSACTIONAL_ID, group, ACLOperation.WRITE),
        allow(ResourceType.TRANSACTIONAL_ID, group, ACLOperation.DESCRIBE),
    ]
    grant(stage, [*rights, allow(ResourceType.TOPIC, topic, ACLOperation.READ)] if may_read else rights)
    settings = secured(stage).settings
    publisher = SinglePublisher(settings, topic, group)
    wait_until(lambda: _has_begun(publisher), "the rights are known")
    try:
        publisher.commit([ProducerRecord(topic, b"k", (), b"v")], Committed(1, "progress"))
    except TransportWithheld:
        assert not may_read
        with pytest.raises(ExceptionGroup, match="withheld"):
            preflight_topics(settings, [(topic, topic)])
    else:
        assert may_read
        preflight_topics(settings, [(topic, topic)])
        assert publisher.find() == Committed(1, "progress")
    publisher.discard()


@pytest.mark.parametrize("may_write", [False, True])
def test_to_append_to_the_input_as_the_bridge_does_one_has_to_write_it_and_no_more(stage: KafkaStage, may_write: bool) -> None:
    right = ACLOperation.WRITE if may_write else ACLOperation.DESCRIBE
    grant(stage, [allow(ResourceType.TOPIC, stage.topics.input, right)])
    topic = stage.topics.input
    settings = msgspec.structs.replace(secured(stage).settings, topics=KafkaTopics(topic, topic, topic))
    if not may_write:
        with pytest.raises(TransportWithheld, match="Give the user Write and Describe on the input topic"):
            KafkaStart(settings)
        with pytest.raises(ExceptionGroup, match="withheld"):
            preflight_start(settings)
        return

    def opened() -> KafkaStart | None:
        with suppress(TransportWithheld, TransportUnavailable):
            return KafkaStart(settings)
        return None

    start = wait_until(opened, "the rights are known")
    assert start is not None
    start.append([Line(b"value", b"unit")])
    start.close()
    preflight_start(settings)


def _has_begun(publisher: SinglePublisher) -> bool:
    with suppress(TransportWithheld):
        publisher.begin()
    return publisher.has_begun


def test_who_only_looks_may_write_nothing(stage: KafkaStage) -> None:
    stage.send(b"a")
    stage.set_position(stage.partitions[0], 1)
    grant(stage, rights_to_look(stage))
    settings = stage.settings(consumer=options(stage))
    found = wait_until(lambda: found if isinstance(found := topic_ends(settings), TopicEnds) else None, "the ends of the topics")
    assert (found.ends[stage.partitions[0]], dict(found.positions)) == (1, {stage.partitions[0]: 1})


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (0, r"topic in-.*: .*Give the user Read and Describe on the input topic"),
        (1, r"topic out-.*: .*Give the user Read and Describe on the outputs"),
        (2, r"topic dead-.*: .*Give the user Read and Describe on the outputs"),
        (3, r"Give the user Read on the group group\.id"),
    ],
)
def test_who_looks_has_to_read_all_topics_and_to_know_the_group(stage: KafkaStage, missing: int, reason: str) -> None:
    rights = rights_to_look(stage)
    del rights[missing]
    grant(stage, rights)
    settings = stage.settings(consumer=options(stage))
    wait_until(lambda: re.search(reason, str(topic_ends(settings))), reason)


def test_the_password_is_in_no_text_of_the_settings(stage: KafkaStage) -> None:
    transport: KafkaTransport = secured(stage).transport
    assert PASSWORD not in repr(transport)
