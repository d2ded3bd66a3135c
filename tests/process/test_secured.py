"""The service with servers that all require TLS, logins and rights, configured as the page of the servers shows it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from harness.nightly import at_night
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, KAFKA_CLIENTS, NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import DEADLINE_SECONDS
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

from notification_service.status.report import State
from servers.infinispan import InfinispanServer, InfinispanSettings
from servers.kafka import KafkaServer, KafkaSettings
from servers.redis import RedisServer, RedisSettings
from tests.storage.tls_proxy import tls_in_front_of

pytestmark = pytest.mark.slow

USER = "resequencer"
SECRETS = {"KAFKA_PASSWORD": "correct horse", "REDIS_PASSWORD": "battery", "INFINISPAN_PASSWORD": "staple"}
TOPICS = ("IPF_PROCESSING_DATA", "PAYMENT_STATUS_NOTIFICATION", "IPF_PROCESSING_DATA_DEAD_LETTERS")
GROUP = "ipf-notification-service-ingress-consumer-group"
PAGE = Path(__file__).parents[2] / "docs" / "servers.md"
Given = Mapping[str, str]


@pytest.fixture(scope="module")
def broker(server_directory: Path) -> Iterator[KafkaServer]:
    settings = KafkaSettings(tls=True, users={USER: SECRETS["KAFKA_PASSWORD"], "stranger": "nothing"})
    server = KafkaServer(server_directory / f"own-{uuid4().hex}", settings).start()
    server.create_topics(*TOPICS, *(f"{topic}-{storage}" for topic in TOPICS for storage in ("redis", "infinispan")))
    rights = [_allow(ResourceType.TOPIC, topic, right) for topic in TOPICS for right in (ACLOperation.READ, ACLOperation.WRITE)]
    rights.append(_allow(ResourceType.GROUP, GROUP, ACLOperation.READ))
    rights.append(_allow(ResourceType.TRANSACTIONAL_ID, GROUP, ACLOperation.WRITE))
    with server.admin() as admin:
        admin.create_acls(rights)
    yield server
    server.kill()


def _allow(kind: ResourceType, beginning: str, operation: ACLOperation) -> ACL:
    pattern = ResourcePattern(kind, beginning, ACLResourcePatternType.PREFIXED)
    return ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, pattern)


@pytest.fixture(scope="module")
def redis(server_directory: Path) -> Iterator[RedisServer]:
    settings = RedisSettings(user=USER, password=SECRETS["REDIS_PASSWORD"], tls=True)
    server = RedisServer(server_directory / f"own-{uuid4().hex}", settings)
    yield server.start()
    server.kill()


@pytest.fixture(scope="module")
def infinispan(server_directory: Path) -> Iterator[tuple[str, Path]]:
    """The server's address and its certificate authority."""
    settings = InfinispanSettings(users={USER: SECRETS["INFINISPAN_PASSWORD"]})
    server = InfinispanServer(server_directory / f"own-{uuid4().hex}", settings)
    certificates = KafkaServer(server_directory / f"own-{uuid4().hex}").certificates
    with tls_in_front_of(server.start().ports["infinispan"], certificates) as port:
        yield f"https://127.0.0.1:{port}", certificates.authority
    server.kill()


@pytest.fixture
def places(broker: KafkaServer, redis: RedisServer, infinispan: tuple[str, Path]) -> dict[str, str]:
    """The names on the page, and their values in this test."""
    return {
        "kafka-1:9093,kafka-2:9093": broker.sasl_tls_bootstrap,
        "rediss://redis:6379/0": f"rediss://127.0.0.1:{redis.ports['redis']}/0",
        "https://infinispan:11222": infinispan[0],
        "/etc/resequencer/kafka.pem": str(broker.certificates.authority),
        "/etc/resequencer/redis.pem": str(redis.certificates.authority),
        "/etc/resequencer/infinispan.pem": str(infinispan[1]),
    }


@pytest.fixture
def secured(places: Given, tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Make services with the configuration of the page, and further overrides."""
    made: list[Daemon] = []
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "application.conf").write_text(
        f"{RESEQUENCER}.strategy = SEQUENCE\n{RESEQUENCER}.storage-type = embedded\n", encoding="utf-8"
    )
    (block,) = re.findall(r"^```hocon\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for there, here in places.items():
        assert there in block
        block = block.replace(there, here)
    (tmp_path / "conf" / "secured.conf").write_text(block, encoding="utf-8")

    def make(*overrides: str, **secrets: str) -> Daemon:
        environment = os.environ | SECRETS | secrets
        made.append(Daemon(OperatedService(tmp_path, *overrides, config="conf/secured.conf", environment=environment)))
        return made[-1]

    yield make
    for daemon in made:
        daemon.service.verb("stop")
        daemon.service.clear_away()


@pytest.mark.parametrize("storage", ["redis", *at_night("processes", "infinispan")])
def test_it_comes_in_by_every_door_and_no_secret_is_told(secured: Callable[..., Daemon], storage: str) -> None:
    source, output, dead = (f"{topic}-{storage}" for topic in TOPICS)
    daemon = secured(
        f"{RESEQUENCER}.storage-type={storage}",
        f"{INGRESS}.kafka.consumer.topic={source}",
        f"{NOTIFICATION}.kafka.producer.topic={output}",
        f"{NOTIFICATION}.dead-letters.topic={dead}",
        f"{KAFKA_CLIENTS}.group.id={GROUP}-{storage}",
    )
    verb = daemon.service.verb
    checked = verb("check", "--connect")
    assert checked.returncode == 0, checked.stderr
    daemon.start()
    simulated = verb("simulate", "--units", "30", "--garbage", "0", "--late", "0", "--losses", "0")
    assert simulated.returncode == 0, simulated.stderr
    followed = verb("verify", "--follow", "--give-up-after", "60s")
    assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
    assert verb("stop").returncode == 0
    printed = checked.stdout + daemon.log_file.read_text()
    assert not [secret for secret in SECRETS.values() if secret in printed]


@pytest.mark.parametrize(
    ("overrides", "secrets", "expected"),
    [
        (
            [f"{KAFKA_CLIENTS}.sasl.username=stranger"],
            {"KAFKA_PASSWORD": "nothing"},
            "Give the user Read and Describe on the input topic",
        ),
        ([], {"KAFKA_PASSWORD": "wrong"}, "Check security.protocol, sasl.mechanism, sasl.username and sasl.password"),
        ([], {"REDIS_PASSWORD": "wrong"}, "storage.redis.username and password"),
        (
            [f"{RESEQUENCER}.storage-type=infinispan", f"{NOTIFICATION}.storage.infinispan.tls.ca-file=conf/other.pem"],
            {},
            "storage.infinispan.tls.ca-file",
        ),
    ],
)
def test_who_is_not_let_in_is_told_which_key_to_look_at(
    secured: Callable[..., Daemon], tmp_path: Path, overrides: list[str], secrets: Given, expected: str
) -> None:
    other = KafkaServer(tmp_path / "other").certificates.authority
    daemon = secured(*overrides, **secrets)
    (tmp_path / "conf" / "other.pem").write_bytes(other.read_bytes())
    started = daemon.service.verb("start")
    assert started.returncode == 1
    # A broker that is too busy to answer the login in time is told of as unavailable, with the same keys to check.
    assert expected.casefold() in started.stderr.casefold()
    assert not daemon.log_file.exists()


def test_a_wrong_password_of_kafka_is_waited_for_by_who_runs_and_said_in_the_status(secured: Callable[..., Daemon]) -> None:
    """The brokers close the connection, as when they stop."""
    daemon = secured(KAFKA_PASSWORD="wrong")
    beside = daemon.service.begin_verb("run")
    remedy = "check security.protocol, sasl.mechanism, sasl.username and sasl.password"
    daemon.wait_for(lambda report: report.state is State.SOURCE_UNAVAILABLE and remedy in (report.reason or ""), "the remedy")
    assert remedy in daemon.service.verb("status").stdout
    assert daemon.service.verb("stop").returncode == 0
    assert beside.wait(DEADLINE_SECONDS) == 0


def test_every_right_that_is_missing_is_named_before_anything_starts(secured: Callable[..., Daemon]) -> None:
    daemon = secured(f"{KAFKA_CLIENTS}.sasl.username=stranger", KAFKA_PASSWORD="nothing", REDIS_PASSWORD="wrong")
    started = daemon.service.verb("start")
    assert started.returncode == 1
    expected = [
        *(f"topic {topic}: " for topic in TOPICS),
        "Give the user Read on the group",
        "transactional id ",
        "storage.redis.",
    ]
    assert not [each for each in expected if each not in started.stderr], started.stderr


def test_a_secret_that_is_not_in_the_environment_is_asked_for(secured: Callable[..., Daemon]) -> None:
    service = secured().service
    assert service.environment is not None
    service.environment = {name: value for name, value in service.environment.items() if name != "KAFKA_PASSWORD"}
    started = service.verb("start")
    assert started.returncode == 3
    assert "KAFKA_PASSWORD" in started.stderr
