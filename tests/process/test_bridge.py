"""The bridge as a running process: each source with each start, while bridge, worker and servers are killed under load.

Behind the bridge everything is as it is without one: nothing lost, nothing doubled, nothing out of order.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from harness.processes.bridges import BridgeStage, report_of
from harness.processes.operated_daemon import Daemon

from servers.artemis.server import ArtemisServer
from servers.kafka.server import KafkaServer

pytestmark = pytest.mark.slow

NewDaemon = Callable[..., Daemon]
Naming = Callable[[str], str]


@pytest.fixture
def stage(kafka: KafkaServer, artemis: ArtemisServer, fresh_name: Naming) -> BridgeStage:
    return BridgeStage(artemis, kafka, fresh_name)


@pytest.mark.parametrize(("start", "sink"), [("kafka", "kafka"), ("file", "kafka"), ("kafka", "file")])
@pytest.mark.parametrize("source", ["mqtt", "xms"])
def test_what_comes_through_the_bridge_is_notified_once_while_the_bridge_is_killed(
    new_daemon: NewDaemon, stage: BridgeStage, source: str, start: str, sink: str
) -> None:
    daemon = new_daemon(*stage.overrides(source, start, sink))
    stage.begin_feeding(daemon)
    stage.kill_bridge(daemon, Random(f"{source} to {start}"))
    stage.expect_every_promise_held(daemon, sink)


def test_what_comes_through_the_bridge_is_notified_once_while_the_worker_is_killed(
    new_daemon: NewDaemon, stage: BridgeStage
) -> None:
    daemon = new_daemon(*stage.overrides("mqtt", "kafka", "kafka"))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random("worker"))
    stage.expect_every_promise_held(daemon, "kafka")


@pytest.mark.parametrize("source", ["mqtt", "xms"])
def test_nothing_that_artemis_acknowledged_is_lost_while_it_is_killed(
    new_daemon: NewDaemon, own_server: Callable[..., Any], kafka: KafkaServer, fresh_name: Naming, source: str
) -> None:
    broker = own_server(ArtemisServer).start()
    stage = BridgeStage(broker, kafka, fresh_name)
    daemon = new_daemon(*stage.overrides(source, "kafka", "kafka"))
    stage.begin_feeding(daemon)
    stage.kill_server(daemon, broker, Random(f"{source} of a killed broker"))
    stage.expect_every_promise_held(daemon, "kafka")


def test_the_broker_keeps_what_comes_while_the_start_is_away(
    new_daemon: NewDaemon, own_server: Callable[..., Any], artemis: ArtemisServer, fresh_name: Naming
) -> None:
    kafka = own_server(KafkaServer).start()
    stage = BridgeStage(artemis, kafka, fresh_name)
    daemon = new_daemon(*stage.overrides("mqtt", "kafka", "kafka"))
    stage.begin_feeding(daemon)
    stage.kill_server(daemon, kafka, Random("start"))
    stage.expect_every_promise_held(daemon, "kafka")
    report = report_of(daemon)
    assert report is None or report.problem is None
