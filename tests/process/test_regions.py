"""Regions as running services, while workers and brokers are killed under load: each source and each sink, at night each pair.

To Kafka, files and JMS it is exactly once: nothing lost, nothing doubled, nothing out of
order. To MQTT and XMS it is at least once: what comes again is passed over, and what came first is compared in the same way.
"""

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import pytest
from harness.nightly import SEED, at_night
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, NOTIFICATION
from harness.processes.regions import RegionStage

from guardian.region import RegionState
from notification_service.status.report import RegionStatus, State
from servers.artemis import ArtemisServer
from servers.kafka import KafkaServer
from servers.mosquitto import MosquittoServer
from servers.redis import RedisServer

pytestmark = pytest.mark.slow

NewDaemon = Callable[..., Daemon]
Naming = Callable[[str], str]

AT_NIGHT = pytest.mark.nightly("regions")
KINDS = ("kafka", "file", "jms")


@pytest.fixture
def stage(kafka: KafkaServer, artemis: ArtemisServer, fresh_name: Naming) -> RegionStage:
    """Topics and queues of the test's own on the servers of the run."""
    return RegionStage(kafka, artemis, fresh_name)


@AT_NIGHT
@pytest.mark.parametrize(("source", "sink"), [*product(KINDS, KINDS)])
def test_each_pair_is_exactly_once_while_its_worker_is_killed(
    new_daemon: NewDaemon, stage: RegionStage, source: str, sink: str
) -> None:
    daemon = new_daemon(*stage.overrides(source, sink))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random(f"{SEED} {source} to {sink}"))
    stage.expect_every_promise_held(daemon, sink)


@AT_NIGHT
@pytest.mark.parametrize("sink", ["kafka", "jms"])
def test_fixed_partitions_are_exactly_once_while_their_worker_is_killed(
    new_daemon: NewDaemon, stage: RegionStage, sink: str
) -> None:
    daemon = new_daemon(*stage.overrides("kafka", sink), f"{INGRESS}.kafka.partitions=[0, 1]")
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random(f"{SEED} fixed to {sink}"))
    stage.expect_every_promise_held(daemon, sink)


@pytest.mark.parametrize(
    ("source", "sinks"),
    [("jms", ("file", "kafka")), *at_night("regions", ("kafka", ("jms", "kafka")), ("file", ("kafka", "jms")))],
)
def test_several_sinks_are_each_exactly_once_while_the_worker_is_killed(
    new_daemon: NewDaemon, stage: RegionStage, source: str, sinks: tuple[str, ...]
) -> None:
    daemon = new_daemon(*stage.overrides(source, *sinks))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random(f"{SEED} {source} to {sinks}"))
    stage.expect_every_promise_held(daemon, *sinks)


@pytest.mark.parametrize(
    ("source", "sink"), [("jms", "jms"), *at_night("regions", ("jms", "file"), ("file", "jms"), ("kafka", "jms"))]
)
def test_exactly_once_while_the_jms_broker_is_killed_and_comes_again(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], kafka: KafkaServer, fresh_name: Naming, source: str, sink: str
) -> None:
    broker = struck_server(ArtemisServer)
    stage = RegionStage(kafka, broker, fresh_name)
    daemon = new_daemon(*stage.overrides(source, sink))
    stage.begin_feeding(daemon)
    stage.kill_broker(daemon, broker, Random(f"{SEED} {source} to {sink}"))
    stage.expect_every_promise_held(daemon, sink)


@AT_NIGHT
@pytest.mark.parametrize(("source", "sink"), [("kafka", "jms"), ("jms", "kafka"), ("kafka", "file"), ("file", "kafka")])
def test_exactly_once_while_the_kafka_broker_is_killed_and_comes_again(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], artemis: ArtemisServer, fresh_name: Naming, source: str, sink: str
) -> None:
    broker = struck_server(KafkaServer)
    stage = RegionStage(broker, artemis, fresh_name)
    daemon = new_daemon(*stage.overrides(source, sink))
    stage.begin_feeding(daemon)
    stage.kill_broker(daemon, broker, Random(f"{SEED} {source} to {sink}"))
    stage.expect_every_promise_held(daemon, sink)


# Sinks that keep no marker


@AT_NIGHT
@pytest.mark.parametrize("sink", ["mqtt", "xms"])
@pytest.mark.parametrize("source", KINDS)
def test_each_source_reaches_a_sink_without_a_marker_at_least_once_while_its_worker_is_killed(
    new_daemon: NewDaemon, stage: RegionStage, source: str, sink: str
) -> None:
    daemon = new_daemon(*stage.overrides(source, sink))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random(f"{SEED} {source} to {sink}"))
    stage.expect_every_promise_held(daemon, sink)


@pytest.mark.parametrize(
    ("source", "sinks"),
    at_night("regions", ("file", ("jms", "mqtt", "xms")), ("kafka", ("kafka", "mqtt")), ("jms", ("mqtt", "file"))),
)
def test_several_sinks_of_which_some_keep_no_marker_hold_each_its_promise_while_the_worker_is_killed(
    new_daemon: NewDaemon, stage: RegionStage, source: str, sinks: tuple[str, ...]
) -> None:
    daemon = new_daemon(*stage.overrides(source, *sinks))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random(f"{SEED} {source} to {sinks}"))
    stage.expect_every_promise_held(daemon, *sinks)


@AT_NIGHT
@pytest.mark.parametrize(("sinks", "qos"), [(("mqtt",), 1), (("mqtt",), 2), (("xms",), 1)])
def test_at_least_once_while_the_broker_of_a_sink_without_a_marker_is_killed_and_comes_again(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], fresh_name: Naming, sinks: tuple[str, ...], qos: int
) -> None:
    broker = struck_server(ArtemisServer)
    stage = RegionStage(None, broker, fresh_name)
    daemon = new_daemon(*stage.overrides("file", *sinks), f"{NOTIFICATION}.mqtt.qos={qos}")
    stage.begin_feeding(daemon)
    stage.kill_broker(daemon, broker, Random(f"{SEED} file to {sinks} with qos {qos}"))
    stage.expect_every_promise_held(daemon, *sinks)


@AT_NIGHT
def test_another_broker_of_mqtt_gets_everything_at_least_once_while_the_worker_is_killed(
    new_daemon: NewDaemon, mosquitto: MosquittoServer, fresh_name: Naming
) -> None:
    stage = RegionStage(None, None, fresh_name, mosquitto)
    daemon = new_daemon(*stage.overrides("file", "mqtt"))
    stage.begin_feeding(daemon)
    stage.kill_workers(daemon, Random("file to mosquitto"))
    stage.expect_every_promise_held(daemon, "mqtt")


def test_exactly_once_while_the_storage_is_killed_and_comes_again(
    new_daemon: NewDaemon, own_server: Callable[..., Any], stage: RegionStage
) -> None:
    storage = own_server(RedisServer).start()
    of_redis = f'{NOTIFICATION} {{ resequencer.storage-type = redis, storage.redis.url = "{storage.url}" }}'
    daemon = new_daemon(*stage.overrides("kafka", "kafka", "jms"), of_redis)
    stage.begin_feeding(daemon)
    stage.kill_broker(daemon, storage, Random(f"{SEED} the storage"))
    stage.expect_every_promise_held(daemon, "kafka", "jms")


# The states of a region on real servers


@pytest.mark.parametrize(
    ("source", "sinks"), [("jms", ("kafka", "file")), *at_night("regions", ("kafka", ("kafka",)), ("kafka", ("jms",)))]
)
def test_exactly_once_while_an_operator_resets_the_region(
    new_daemon: NewDaemon, stage: RegionStage, source: str, sinks: tuple[str, ...]
) -> None:
    daemon = new_daemon(*stage.overrides(source, *sinks))
    stage.begin_feeding(daemon, "--rate", "60/s")
    stage.reset_regions(daemon, Random(f"{SEED} resets of {source} to {sinks}"))
    assert region_of(daemon).resets == 3
    stage.expect_every_promise_held(daemon, *sinks)


def test_a_sink_that_refuses_fails_the_region_which_goes_on_after_an_order(new_daemon: NewDaemon, stage: RegionStage) -> None:
    daemon = new_daemon(*stage.overrides("jms", "kafka"), f"{NOTIFICATION}.region.max-consecutive-reset-attempts=2")
    stage.limit_topics(100)
    stage.begin_feeding(daemon)
    daemon.wait_for(lambda report: report.state is State.FAILED, "the region has failed")
    region = region_of(daemon)
    assert (region.state, region.resets, region.failed) == (RegionState.FAILED, 2, "sink kafka")
    assert "the shortest form of a dead letter takes more" in (region.failure or "")
    shown = daemon.service.verb("region", "show")
    assert (shown.returncode, "sink kafka" in shown.stdout) == (1, True)

    stage.limit_topics(1 << 20)
    assert daemon.service.verb("region", "reset").returncode == 0
    stage.expect_every_promise_held(daemon, "kafka")


def test_a_region_whose_broker_is_away_waits_for_it_and_is_not_reset(
    new_daemon: NewDaemon, struck_server: Callable[..., Any], fresh_name: Naming
) -> None:
    broker = struck_server(ArtemisServer)
    stage = RegionStage(None, broker, fresh_name)
    daemon = new_daemon(*stage.overrides("jms", "jms"))
    stage.begin_feeding(daemon)
    broker.kill()
    daemon.wait_for(lambda report: report.region is not None and report.region.state == RegionState.WAITING, "it waits")
    assert [each.name for each in region_of(daemon).participants if each.problem is not None] != []
    broker.start()
    daemon.wait_for(lambda report: report.region is not None and report.region.state != RegionState.WAITING, "it goes on")
    assert region_of(daemon).resets == 0
    stage.expect_every_promise_held(daemon, "jms")


def region_of(daemon: Daemon) -> RegionStatus:
    assert daemon.report is not None
    assert daemon.report.region is not None
    return daemon.report.region
