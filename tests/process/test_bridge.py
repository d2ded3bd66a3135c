"""The bridge as a running process, while bridge, worker and servers are killed under load: at night each source and start.

Behind the bridge everything is as it is without one: nothing lost, nothing doubled, nothing out of order.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from harness.nightly import SEED, at_night
from harness.processes.bridges import BridgeStage, report_of
from harness.processes.operated_daemon import Daemon
from harness.waiting import wait_until

from notification_service.connectors.line_format import Line, decode_line
from notification_service.connectors.mqtt.connection import Session
from notification_service.connectors.mqtt.settings import BrokerSettings
from notification_service.connectors.optional_clients import connect_mqtt
from servers.artemis import ArtemisServer
from servers.kafka import KafkaServer
from servers.mosquitto import MosquittoServer

pytestmark = pytest.mark.slow
AT_NIGHT = pytest.mark.nightly("bridge")

NewDaemon = Callable[..., Daemon]
Naming = Callable[[str], str]


@pytest.fixture
def stage(kafka: KafkaServer, artemis: ArtemisServer, fresh_name: Naming) -> BridgeStage:
    return BridgeStage(artemis, kafka, fresh_name)


@pytest.mark.parametrize(
    ("source", "start", "sinks"),
    [
        ("mqtt", "kafka", ("kafka",)),
        *at_night(
            "bridge",
            ("xms", "file", ("kafka",)),
            ("mqtt", "kafka", ("file",)),
            ("mqtt", "kafka", ("jms", "mqtt", "xms")),
            ("mqtt", "file", ("kafka",)),
            ("xms", "kafka", ("kafka",)),
            ("xms", "kafka", ("file",)),
            ("xms", "kafka", ("jms", "mqtt", "xms")),
        ),
    ],
)
def test_what_comes_through_the_bridge_is_notified_once_while_the_bridge_is_killed(
    new_daemon: NewDaemon, stage: BridgeStage, source: str, start: str, sinks: tuple[str, ...]
) -> None:
    """Sinks without a marker get it at least once, as from any source."""
    daemon = new_daemon(*stage.overrides(source, start, *sinks))
    stage.begin_feeding(daemon)
    stage.kill_bridge(daemon, Random(f"{SEED} {source} to {start}"))
    stage.expect_every_promise_held(daemon, *sinks)


@AT_NIGHT
def test_what_comes_through_the_bridge_is_notified_once_while_the_worker_is_killed(
    new_daemon: NewDaemon, stage: BridgeStage
) -> None:
    daemon = new_daemon(*stage.overrides("mqtt", "kafka", "kafka"))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random(f"{SEED} worker"))
    stage.expect_every_promise_held(daemon, "kafka")


@AT_NIGHT
@pytest.mark.parametrize("source", ["xms", "mqtt"])
def test_nothing_that_artemis_acknowledged_is_lost_while_it_is_killed(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], kafka: KafkaServer, fresh_name: Naming, source: str
) -> None:
    broker = struck_server(ArtemisServer)
    stage = BridgeStage(broker, kafka, fresh_name)
    daemon = new_daemon(*stage.overrides(source, "kafka", "kafka"))
    stage.begin_feeding(daemon)
    stage.kill_server(daemon, broker, Random(f"{SEED} {source} of a killed broker"))
    stage.expect_every_promise_held(daemon, "kafka")


@AT_NIGHT
def test_the_broker_keeps_what_comes_while_the_start_is_away(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], artemis: ArtemisServer, fresh_name: Naming
) -> None:
    kafka = struck_server(KafkaServer)
    stage = BridgeStage(artemis, kafka, fresh_name)
    daemon = new_daemon(*stage.overrides("mqtt", "kafka", "kafka"))
    stage.begin_feeding(daemon)
    stage.kill_server(daemon, kafka, Random(f"{SEED} start"))
    stage.expect_every_promise_held(daemon, "kafka")
    report = report_of(daemon)
    assert report is None or report.problem is None


@AT_NIGHT
def test_what_comes_by_mosquitto_is_notified_once_while_the_bridge_is_killed(
    new_daemon: NewDaemon, mosquitto: MosquittoServer, fresh_name: Naming
) -> None:
    stage = BridgeStage(mosquitto, None, fresh_name)
    daemon = new_daemon(*stage.overrides("mqtt", "file", "file"))
    stage.begin_feeding(daemon)
    stage.kill_bridge(daemon, Random(f"{SEED} mosquitto"))
    stage.expect_every_promise_held(daemon, "file")


@AT_NIGHT
def test_after_a_kill_of_mosquitto_only_what_it_lost_itself_is_missing(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], fresh_name: Naming
) -> None:
    """It has no setting that syncs each message. What it lost was published before the kill, or while it had no session."""
    broker = struck_server(MosquittoServer)
    stage = BridgeStage(broker, None, fresh_name)
    daemon = new_daemon(*stage.overrides("mqtt", "file", "file"))
    daemon.start()
    stage.publish_until_kept("first")
    before = [f"before-{number}" for number in range(300)]
    stage.publish(*before)
    broker.kill()
    broker.start()
    stage.publish_until_kept("between")
    after = [f"after-{number}" for number in range(300)]
    stage.publish(*after)

    def notified() -> list[str]:
        lines = (daemon.service.out_directory / "notifications.jsonl").read_bytes().splitlines()
        return [key.decode() for line in lines if isinstance(read := decode_line(line), Line) and (key := read.key)]

    wait_until(lambda: set(after) <= set(notified()), "everything that came after the kill is notified")
    found = notified()
    assert len(found) == len(set(found))
    assert set(found) - {"first", "between"} <= {*before, *after}


@AT_NIGHT
def test_a_bridge_whose_session_is_taken_over_ends_and_says_so_while_the_service_goes_on(
    new_daemon: NewDaemon, stage: BridgeStage
) -> None:
    daemon = new_daemon(*stage.overrides("mqtt", "file", "file"))
    daemon.start()
    stage.publish_until_kept("first")
    other = connect_mqtt(BrokerSettings(stage.broker.mqtt_url, client_id=stage.client_id), Session(60, 10))
    wait_until(lambda: (found := report_of(daemon)) is not None and found.reported_at is None, "the bridge has ended")
    other.close()
    report = report_of(daemon)
    assert report is not None
    assert "This one ends, and does not take the session back" in (report.problem or "")
    shown = daemon.service.verb("status")
    assert "bridge: ipf.bridge.mqtt.client-id: " in shown.stdout
    assert shown.returncode == 0


@AT_NIGHT
def test_what_is_no_envelope_becomes_a_dead_letter_behind_the_bridge(new_daemon: NewDaemon, stage: BridgeStage) -> None:
    daemon = new_daemon(*stage.overrides("mqtt", "file", "file"))
    daemon.start()
    stage.publish_until_kept("first")
    stage.publish_values(b"no envelope", b"\xff\xfe", b"")
    letters = daemon.service.out_directory / "dead-letters.jsonl"
    wait_until(lambda: letters.exists() and letters.read_bytes().count(b"\n") == 3, "each is a dead letter")


def test_an_ingress_without_its_bridge_goes_on_when_the_bridge_cannot_start(new_daemon: NewDaemon, stage: BridgeStage) -> None:
    away = 'ipf.bridge.mqtt.url="mqtt://127.0.0.1:1"'
    daemon = new_daemon(*stage.overrides("mqtt", "file", "file"), away)
    daemon.start()
    wait_until(lambda: (found := report_of(daemon)) is not None and found.problem is not None, "the bridge stands still")
    assert "source: mqtt://127.0.0.1:1: " in daemon.service.verb("status").stdout
    checked = daemon.service.verb("check", "--connect")
    assert "mqtt://127.0.0.1:1" in checked.stdout + checked.stderr
