"""Problems that a person must fix, on real servers: reported before the start, and waited for by a running service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import KAFKA_CLIENTS, NOTIFICATION, RESEQUENCER, kafka_overrides
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.status.report import State
from servers.kafka import KafkaServer
from servers.redis import RedisServer, RedisSettings

pytestmark = pytest.mark.slow

REDIS = f"{NOTIFICATION}.storage.redis"
NewDaemon = Callable[..., Daemon]
Naming = Callable[[str], str]


def test_all_that_is_missing_is_told_at_once_and_nothing_is_started(
    new_daemon: NewDaemon, kafka: KafkaServer, redis_server: RedisServer, fresh_name: Naming
) -> None:
    topics = [fresh_name(each) for each in ("in", "out", "dead")]
    wrong = (f"{RESEQUENCER}.storage-type=redis", f'{REDIS} {{ url = "{redis_server.url}", password = wrong }}')
    service = new_daemon(*kafka_overrides(kafka.bootstrap, *topics, fresh_name("group")), *wrong).service
    started = service.verb("start")
    assert started.returncode == 1
    for topic in topics:
        assert f"resequencer: topic {topic}: this " in started.stderr
    assert started.stderr.count("Create it (kafka-topics --create)") == len(topics)
    assert "check storage.redis.username and password" in started.stderr
    assert not service.run_directory.exists()
    checked = service.verb("check", "--connect")
    assert checked.returncode == 4
    assert checked.stderr.splitlines() == started.stderr.splitlines()[:-1]


def test_a_server_that_is_away_is_waited_for_and_that_is_said(
    new_daemon: NewDaemon, own_server: Callable[..., RedisServer]
) -> None:
    server = own_server(RedisServer).start()
    daemon = new_daemon(f"{RESEQUENCER}.storage-type=redis", f'{REDIS}.url="{server.url}"')
    server.kill()
    beside = daemon.service.begin_verb("start")
    wait_until(lambda: "unavailable, the service will wait for it: " in _said(daemon, "start.log"), "the remedy")
    daemon.wait_for(lambda report: report.state is State.STORAGE_UNAVAILABLE, "it is missed")
    server.start()
    assert beside.wait(DEADLINE_SECONDS) == 0
    assert "ready: process" in _said(daemon, "start.log")


def test_a_service_that_could_not_be_started_again_is_not_stopped(new_daemon: NewDaemon, redis_server: RedisServer) -> None:
    daemon = new_daemon(f"{RESEQUENCER}.storage-type=redis", f'{REDIS}.url="{redis_server.url}"')
    daemon.start()
    worker = daemon.worker
    restarted = daemon.service.verb("restart", "--set", f"{REDIS}.password=wrong")
    assert restarted.returncode == 1
    assert "check storage.redis.username and password" in restarted.stderr
    assert daemon.worker == worker
    assert daemon.service.verb("restart").returncode == 0
    assert daemon.worker != worker


def test_a_topic_that_is_deleted_while_the_service_runs_is_waited_for(
    new_daemon: NewDaemon, kafka: KafkaServer, fresh_name: Naming
) -> None:
    source, output, dead = (fresh_name(each) for each in ("in", "out", "dead"))
    kafka.create_topics(source, output, dead, partitions=2)
    overrides = kafka_overrides(kafka.bootstrap, source, output, dead, fresh_name("group"))
    daemon = new_daemon(*overrides, f"{KAFKA_CLIENTS}.metadata.max.age.ms=1000")
    daemon.start()
    worker = daemon.worker
    with kafka.admin() as admin:
        admin.delete_topics([output])
    daemon.wait_for(lambda report: report.state is State.SOURCE_UNAVAILABLE, "it waits")
    wait_until(
        lambda: f"topic {output}: this output topic does not exist" in daemon.service.verb("status").stdout, "it says for what"
    )
    kafka.create_topics(output, partitions=2)
    wait_until(daemon.is_ready, "it goes on")
    simulated = daemon.service.verb("simulate", "--units", "20", "--garbage", "0", "--late", "0", "--losses", "0")
    assert simulated.returncode == 0, simulated.stderr
    followed = daemon.service.verb("verify", "--follow", "--give-up-after", "60s")
    assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
    assert daemon.worker == worker


def test_a_password_that_is_changed_while_the_service_runs_is_waited_for(
    new_daemon: NewDaemon, own_server: Callable[..., RedisServer]
) -> None:
    server = own_server(RedisServer, RedisSettings(user="app", password="before")).start()
    daemon = new_daemon(
        f"{RESEQUENCER}.storage-type=redis", f'{REDIS} {{ url = "{server.url}", username = app, password = before }}'
    )
    daemon.start()
    worker = daemon.worker
    with closing(server.client()) as client:
        client.execute_command("ACL", "SETUSER", "app", "<before", ">after")
        client.execute_command("CLIENT", "KILL", "USER", "app", "SKIPME", "yes")
        daemon.service.tell("uow-1", 1)
        remedy = "check storage.redis.username and password"
        wait_until(lambda: remedy in daemon.service.verb("status").stdout, "it waits and says why")
        assert daemon.report is not None
        assert daemon.report.state is State.STORAGE_UNAVAILABLE
        client.execute_command("ACL", "SETUSER", "app", ">before")
    wait_until(lambda: daemon.service.sequences("uow-1") == [1], "what came leaves")
    assert daemon.worker == worker


def _said(daemon: Daemon, name: str) -> str:
    return (daemon.service.directory / name).read_text(encoding="utf-8")
