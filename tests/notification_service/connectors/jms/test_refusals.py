"""What a broker refuses, as an operator reads it; and a client that is not installed."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from harness.waiting import wait_until
from msgspec.structs import asdict, replace

from guardian.ports import Channel, TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.jms.sending import Sending
from notification_service.connectors.jms.settings import JmsSinkSettings, JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.sink import JmsSink
from notification_service.connectors.jms.source import JmsSource
from resequencer.record import Partition
from servers.artemis import ArtemisServer, ArtemisSettings
from tests.notification_service.connectors.jms.stage import Clock, Queues
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notifications, output

pytestmark = pytest.mark.slow

ONE = PARTITIONS[0]


@pytest.fixture(scope="module")
def strict(server_directory: Any) -> Iterator[ArtemisServer]:
    """A broker with a user, whose queues are made by an administrator."""
    users, queues = {"app": "secret"}, {"EVENTS": False, "CLOSED": False, "MARKERS": False, "OUT": False}
    settings = ArtemisSettings(users=users, closed=("CLOSED",), queues=queues, creates_queues=False)
    server = ArtemisServer(server_directory / f"strict-{uuid4().hex}", settings).start()
    yield server
    server.kill()


def source(server: ArtemisServer, queue: str = "EVENTS", selector: str = "", **login: str) -> JmsSource:
    broker = replace(Queues.fresh(server).broker, **{"user": "app", "password": "secret", **login})
    return JmsSource(JmsSourceSettings(**asdict(broker), partitions=[QueuePartition(queue, selector)]))


def sink(server: ArtemisServer, **settings: Any) -> JmsSink:
    broker = replace(Queues.fresh(server).broker, user="app", password="secret")
    return JmsSink(JmsSinkSettings(**{**asdict(broker), "notifications": "OUT", "markers": "MARKERS", **settings}), Clock())


def test_a_wrong_password_is_withheld_and_names_the_keys(strict: ArtemisServer) -> None:
    with pytest.raises(TransportWithheld, match=r"refuses the login.*Check user and password"):
        source(strict, password="wrong").seek(Partition("EVENTS", 0), 0)


def test_a_missing_queue_is_withheld_until_it_is_created(strict: ArtemisServer) -> None:
    with pytest.raises(TransportWithheld, match=r"queue NONE: amqp:not-found.*Create the queue"):
        source(strict, "NONE").seek(Partition("NONE", 0), 0)
    with pytest.raises(TransportWithheld, match=r"queue NONE .*: amqp:not-found.*Create the queue"):
        sink(strict, markers="NONE").position(ONE)


def test_an_invalid_selector_is_refused(strict: ArtemisServer) -> None:
    with pytest.raises(TransportRefused, match=r"queue EVENTS where part === 1: amqp:invalid-field.*Correct the selector"):
        source(strict, selector="part === 1").seek(Partition("EVENTS", 0), 0)


def test_a_missing_right_is_withheld(strict: ArtemisServer) -> None:
    with pytest.raises(TransportWithheld, match=r"queue CLOSED: amqp:unauthorized-access.*Give the user the rights"):
        source(strict, "CLOSED").seek(Partition("CLOSED", 0), 0)
    closed = sink(strict, notifications="CLOSED")
    closed.position(ONE)
    with pytest.raises(TransportWithheld, match="queue CLOSED"):
        closed.publish([output(ONE, notifications(1, 1), 1)])
    # What was refused holds up nothing: the marker is in its place again.
    assert closed.position(ONE) is None
    closed.close()


def test_an_exclusive_queue_that_is_missing_is_withheld_and_told_where_others_are_read(strict: ArtemisServer) -> None:
    broker = replace(Queues.fresh(strict).broker, user="app", password="secret")
    none, events = QueuePartition("NONE", is_exclusive=True), QueuePartition("EVENTS", is_exclusive=True)
    with pytest.raises(TransportWithheld, match=r"queue NONE.*Create the queue"):
        JmsSource(JmsSourceSettings(**asdict(broker), partitions=[none])).assignment()
    both = JmsSource(JmsSourceSettings(**asdict(broker), partitions=[none, events]))
    assert list(both.assignment()) == []
    assert "NONE-0 is not read: queue NONE: amqp:not-found" in both.standing().notes[0]
    both.close()


def test_a_takeover_that_is_refused_midway_holds_no_marker(artemis: ArtemisServer, monkeypatch) -> None:
    sink = Queues.fresh(artemis).sink()
    right = Sending.commit
    monkeypatch.setattr(Sending, "commit", lambda *_: (_ for _ in ()).throw(TransportWithheld("queue M", "no right. Give it")))
    with pytest.raises(TransportWithheld):
        sink.position(ONE)
    monkeypatch.setattr(Sending, "commit", right)
    assert sink.position(ONE) is None
    sink.close()


def test_what_is_refused_to_one_partition_holds_up_no_other(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    partitions = [QueuePartition(queues.events, "part === 0"), QueuePartition(queues.events, "part = 1")]
    reader = queues.source(partitions=partitions)
    bad, good = queues.partitions()
    with pytest.raises(TransportRefused):
        reader.seek(bad, 0)
    reader.seek(good, 0)
    queues.send_to(1, "m")
    (record,) = wait_until(lambda: reader.poll(1, 100).records, "the message")
    assert record.value == b"m"
    reader.close()


def test_a_broker_that_is_not_there_is_unavailable(artemis: ArtemisServer) -> None:
    nowhere = replace(Queues.fresh(artemis).broker, url="amqp://127.0.0.1:9")
    reader = JmsSource(JmsSourceSettings(**asdict(nowhere), partitions=[QueuePartition("EVENTS")]))
    with pytest.raises(TransportUnavailable):
        reader.seek(Partition("EVENTS", 0), 0)
    with pytest.raises(TransportUnavailable):
        JmsSink(JmsSinkSettings(**asdict(nowhere)), Clock()).position(ONE)


def test_a_marker_that_was_removed_is_refused_with_the_remedy(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    published = queues.sink(marker_patience_ms=1_000)
    published.position(ONE)
    published.publish([output(ONE, notifications(1, 1), 1)])
    (_,) = queues.drain(f"{queues.name}-M")
    with pytest.raises(TransportUnavailable, match="holds the marker"):
        published.position(ONE)
    assert "Put it back. To go on without it" in wait_until(lambda: refusal(published), "a refusal")
    published.close()
    assert len(queues.left(Channel.NOTIFICATIONS)) == 1


def refusal(published: JmsSink) -> str | None:
    try:
        published.position(ONE)
    except TransportUnavailable:
        return None
    except TransportRefused as error:
        return str(error)
    return None


@pytest.mark.parametrize(("kind", "client", "package"), [("jms", "proton", "python-qpid-proton"), ("mqtt", "paho", "paho-mqtt")])
def test_without_the_client_a_service_without_it_runs_and_one_that_needs_it_names_the_extra(
    kind: str, client: str, package: str
) -> None:
    code = (
        f"import sys; sys.modules['{client}'] = None\n"
        f"from notification_service.connectors.{kind} import sink, source\n"
        f"from notification_service.connectors.optional_clients import connect_{kind} as connect\n"
        "from resequencer.errors import ConfigurationError\n"
        "try:\n    connect(None)\nexcept ConfigurationError as error:\n    print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith(f"{package}, the client of ")
    assert f"install it by `make setup-jms`, or pip install '.[{kind}]'" in printed.stdout
