"""A real Kafka broker: which data it keeps, and which users it accepts."""

import gc
import logging
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from harness.waiting import DEADLINE_SECONDS, wait_until
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from servers.kafka import KafkaServer, KafkaSettings

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]
Naming = Callable[[str], str]


def test_a_topic_has_the_partitions_it_was_made_with(kafka: KafkaServer, fresh_name: Naming) -> None:
    topic = fresh_name("topic")
    kafka.create_topics(topic, partitions=3, config={"retention.ms": "60000"})
    kafka.create_topics(topic, partitions=5)  # The topic exists already, and stays.
    with closing(kafka.admin()) as admin:
        (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3


def test_a_broker_that_was_killed_has_its_records_and_its_ports_again_and_one_that_was_paused_answers_again(
    own_server: OwnServer,
) -> None:
    broker = own_server(KafkaServer).start()
    broker.create_topics("topic", partitions=1)
    produce(broker.bootstrap, "topic", b"before")
    before, killed = broker.bootstrap, broker.process
    broker.kill()
    assert not broker.is_running
    assert not broker.is_ready()
    broker.start()
    assert broker.process != killed
    assert broker.bootstrap == before
    assert leaders(broker, "topic") == [1]
    assert "DUPLICATE_BROKER_REGISTRATION" not in broker.log.read_text(), "its predecessor was still taken for alive"
    produce(broker.bootstrap, "topic", b"after")
    broker.pause()
    assert broker.is_running
    assert not broker.is_ready()
    broker.resume()
    broker.wait_until_ready()
    assert consume(broker.bootstrap, "topic", 2) == [b"before", b"after"]


def test_users_may_do_what_they_were_given_and_nothing_else(own_server: OwnServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")  # Captured output would keep refused clients from being collected.
    broker = own_server(KafkaServer, KafkaSettings(tls=True, users={"writer": "secret"})).start()
    broker.create_topics("allowed", "forbidden")
    with closing(broker.admin()) as admin:
        admin.create_acls([allow("writer", "allowed")])
    user = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "writer", "sasl_plain_password": "secret"}
    tls = {"ssl_cafile": str(broker.certificates.authority)}
    for bootstrap, options in (
        (broker.sasl_bootstrap, {"security_protocol": "SASL_PLAINTEXT", **user}),
        (broker.sasl_tls_bootstrap, {"security_protocol": "SASL_SSL", **user, **tls}),
    ):
        wait_until(lambda to=bootstrap, by=options: is_accepted(to, "allowed", **by), "the rights are known")
        with pytest.raises(TopicAuthorizationFailedError):
            produce(bootstrap, "forbidden", b"value", **options)
        assert not is_accepted(bootstrap, "allowed", **options | {"sasl_plain_password": "wrong"})
    produce(
        broker.tls_bootstrap, "forbidden", b"value", security_protocol="SSL", **tls
    )  # Without a name, a user may do everything.
    assert not is_accepted(broker.tls_bootstrap, "allowed", security_protocol="SSL")  # A client without trusted certificates.


def leaders(broker: KafkaServer, topic: str) -> list[int]:
    with closing(broker.admin()) as admin:
        (described,) = admin.describe_topics([topic])
    return [each["leader_id"] for each in described["partitions"]]


def allow(user: str, topic: str) -> ACL:
    return ACL(f"User:{user}", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, topic))


def is_accepted(bootstrap: str, topic: str, **options: Any) -> bool:
    try:
        produce(bootstrap, topic, b"value", bootstrap_timeout_ms=3_000, **options)
    except KafkaError:
        pass
    else:
        return True
    with warnings.catch_warnings():  # A refused producer leaves its sockets to the garbage collection.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return False


def produce(bootstrap: str, topic: str, value: bytes, **options: Any) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **options)) as producer:
        producer.send(topic, value).get(timeout=DEADLINE_SECONDS)


def consume(bootstrap: str, topic: str, number: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1_000 * DEADLINE_SECONDS
    )
    with closing(consumer):
        return [next(consumer).value for _ in range(number)]
