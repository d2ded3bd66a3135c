"""The attributes of the sink mqtt are changed while the service runs, and hold after kills, resets and starts."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER
from harness.waiting import wait_until

from servers.artemis import ArtemisServer
from servers.mosquitto import MosquittoServer
from tests.notification_service.connectors.mqtt.stage import Subscriber

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(fresh_name: Callable[[str], str]) -> str:
    return fresh_name("notifications")


@pytest.fixture
def configured(artemis: ArtemisServer, topic: str) -> Iterator[Subscriber]:
    with closing(Subscriber(artemis.mqtt_url, topic)) as made:
        yield made


@pytest.fixture
def elsewhere(mosquitto: MosquittoServer, topic: str) -> Iterator[Subscriber]:
    with closing(Subscriber(mosquitto.mqtt_url, topic)) as made:
        yield made


@pytest.fixture
def daemon(new_daemon: Callable[..., Daemon], artemis: ArtemisServer, topic: str) -> Daemon:
    made = new_daemon(
        f"{NOTIFICATION}.transport=mqtt",
        f'{NOTIFICATION}.mqtt {{ url = "{artemis.mqtt_url}", notifications.topic = {topic} }}',
        f"{RESEQUENCER} {{ storage-type = embedded, strategy = SEQUENCE }}",
    )
    made.start()
    return made


def assert_arrives(daemon: Daemon, unit: str, subscriber: Subscriber) -> None:
    """Write an envelope of a new unit, and wait until its notification has come here: an earlier one may come again."""
    daemon.service.tell(unit, 1)
    wait_until(lambda: unit.encode() in keys(subscriber), f"the notification of {unit} comes")


def keys(subscriber: Subscriber) -> set[bytes | None]:
    """Return the units of which notifications have come."""
    return {each.key for each in list(subscriber.came)}


def test_what_is_set_holds_from_the_next_publication_on_and_after_kill_reset_and_start(
    daemon: Daemon, configured: Subscriber, elsewhere: Subscriber, mosquitto: MosquittoServer
) -> None:
    verb = daemon.service.verb
    assert_arrives(daemon, "first", configured)
    done = verb("sink", "set", "--url", mosquitto.mqtt_url, "--qos", "2")
    assert (done.returncode, f"url = {mosquitto.mqtt_url} (set by " in done.stdout) == (0, True), done.stderr
    assert_arrives(daemon, "second", elsewhere)
    daemon.wait_for(lambda report: any("qos = 2 (configured: 1)" in each for each in report.notes), "the report tells it")

    worker = daemon.worker
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    daemon.wait_for_another_worker(worker)
    assert_arrives(daemon, "third", elsewhere)
    wait_until(lambda: verb("region", "reset", "--force").returncode == 0, "the region is reset")
    assert_arrives(daemon, "fourth", elsewhere)
    assert verb("restart").returncode == 0
    assert_arrives(daemon, "fifth", elsewhere)

    assert verb("sink", "reset").returncode == 0
    assert_arrives(daemon, "sixth", configured)
    assert (keys(configured), keys(elsewhere)) == ({b"first", b"sixth"}, {b"second", b"third", b"fourth", b"fifth"})


def test_what_waits_for_a_broker_that_is_away_leaves_through_another_one_that_is_set(
    new_daemon: Callable[..., Daemon], struck_server: Callable[..., ArtemisServer], mosquitto: MosquittoServer, topic: str
) -> None:
    broker = struck_server(ArtemisServer)
    daemon = new_daemon(
        f"{NOTIFICATION}.transport=mqtt",
        f'{NOTIFICATION}.mqtt {{ url = "{broker.mqtt_url}", notifications.topic = {topic} }}',
        f"{RESEQUENCER} {{ storage-type = embedded, strategy = SEQUENCE }}",
    )
    daemon.start()
    with closing(Subscriber(mosquitto.mqtt_url, topic)) as elsewhere:
        broker.kill()
        daemon.service.tell("unit", 1, 2, 3)
        daemon.wait_for(lambda report: report.region is not None and report.region.state == "waiting for a server", "it waits")
        assert daemon.service.verb("sink", "set", "--url", mosquitto.mqtt_url).returncode == 0
        wait_until(lambda: len(elsewhere.came) >= 3, "what was pending comes")
        assert [each.key for each in elsewhere.came] == [b"unit"] * 3
    assert daemon.report is not None
    assert daemon.report.region is not None
    assert daemon.report.region.resets == 0


def test_a_file_of_attributes_that_is_damaged_refuses_until_it_is_removed(daemon: Daemon, configured: Subscriber) -> None:
    """To go on with what is configured would send to a broker that an operator has turned away from."""
    assert_arrives(daemon, "first", configured)
    (daemon.service.run_directory / "sink-mqtt.json").write_text("{")
    daemon.service.tell("second", 1)
    daemon.wait_for(lambda report: report.region is not None and report.region.resets > 0, "the region is reset")
    assert daemon.report is not None
    assert daemon.report.region is not None
    assert "sink-mqtt.json: is damaged" in (daemon.report.region.failure or "")
    wait_until(lambda: daemon.service.verb("sink", "reset").returncode == 0, "it is removed, which is refused during a reset")
    wait_until(lambda: daemon.service.verb("region", "reset", "--force").returncode == 0, "the region begins anew")
    wait_until(lambda: len(configured.came) == 2, "the notification comes")
