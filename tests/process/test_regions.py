"""Regions as running services: each source with each sink, while workers and brokers are killed under load.

The README's table names these tests. Every cell is exactly once: nothing lost, nothing doubled, nothing out of order.
"""

from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.regions import KINDS, RegionStage

from servers.artemis.server import ArtemisServer
from servers.kafka.server import KafkaServer

pytestmark = pytest.mark.slow

NewDaemon = Callable[..., Daemon]
LOAD = ("--units", "250", "--rate", "500/s", "--window", "100", "--garbage", "1%", "--late", "0", "--losses", "0")


@pytest.fixture
def stage(kafka: KafkaServer, artemis: ArtemisServer, fresh_name: Callable[[str], str]) -> RegionStage:
    """Topics and queues of the test's own on the servers of the run."""
    return RegionStage(kafka, artemis, fresh_name)


@pytest.mark.parametrize(("source", "sink"), product(KINDS, KINDS), ids="-to-".join)
def test_exactly_once_while_the_worker_is_killed(new_daemon: NewDaemon, stage: RegionStage, source: str, sink: str) -> None:
    daemon = new_daemon(*stage.overrides(source, sink))
    assert stage.feed_and_kill(daemon, LOAD, Random(f"{source} to {sink}")) >= 2
    stage.expect_every_promise_held(daemon)
