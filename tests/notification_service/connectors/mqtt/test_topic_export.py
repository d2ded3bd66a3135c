"""What comes to the output topics is kept in files, each record once, and nothing that was not seen is passed over."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from harness.nightly import at_night
from harness.waiting import wait_until
from msgspec.structs import replace

from guardian.ports import TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.line_format import Line, decode_line
from notification_service.connectors.mqtt.preflight import preflight_sink
from notification_service.connectors.mqtt.topic_export import TopicExport
from servers.artemis import ArtemisServer
from servers.mosquitto import MosquittoServer, MosquittoSettings
from tests.notification_service.connectors.mqtt.stage import Broker, Topics
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notifications, output

pytestmark = pytest.mark.slow

ONE, _ = PARTITIONS

SILENCE_SECONDS = 2.5


@pytest.fixture(params=["mosquitto", *at_night("sinks", "artemis")])
def topics(request: pytest.FixtureRequest) -> Topics:
    server: Broker = request.getfixturevalue(request.param)
    return Topics.fresh(server)


@pytest.fixture
def new_export(topics: Topics, tmp_path: Path) -> Iterator[Callable[[], TopicExport]]:
    made: list[TopicExport] = []

    def make() -> TopicExport:
        for each in made:
            each.close()
        made.append(TopicExport(topics.settings(), topics.name, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def send(topics: Topics, first: int, count: int) -> None:
    with closing(topics.sink()) as sink:
        sink.position(ONE)
        sink.publish([output(ONE, notifications(first, count), first + count)])


def copied(directory: Path) -> list[bytes]:
    lines = map(decode_line, (directory / "notifications.jsonl").read_bytes().splitlines())
    return [line.value for line in lines if isinstance(line, Line)]


def values(first: int, count: int) -> list[bytes]:
    return [each.value for each in notifications(first, count)]


def test_what_comes_again_is_counted_and_kept_once_also_by_the_next_export(
    topics: Topics, new_export: Callable[[], TopicExport], tmp_path: Path
) -> None:
    export = new_export()
    export.subscribe()
    export.close()
    send(topics, 1, 300)
    send(topics, 250, 100)
    export.catch_up()
    assert copied(tmp_path) == values(1, 349)
    assert export.repeats.count == 51
    again = new_export()
    send(topics, 340, 20)
    again.catch_up()
    assert copied(tmp_path) == values(1, 359)
    assert again.repeats.count == 10


@pytest.mark.parametrize("kind", [MosquittoServer, *at_night("sinks", ArtemisServer)])
def test_a_broker_that_is_silent_for_a_while_has_not_sent_all_of_the_topic(
    struck_server: Callable[..., Broker], kind: type[Broker], tmp_path: Path
) -> None:
    broker = struck_server(kind)
    topics = Topics.fresh(broker)
    file = tmp_path / "notifications.jsonl"
    with closing(TopicExport(topics.settings(), topics.name, tmp_path)) as export, ThreadPoolExecutor(1) as beside:
        export.subscribe()
        send(topics, 1, 5_000)
        caught_up = beside.submit(export.catch_up)
        wait_until(lambda: file.stat().st_size > 0, "it has begun", look_seconds=0)
        broker.pause()
        paused_at, size = monotonic(), file.stat().st_size
        wait_until(lambda: monotonic() > paused_at + SILENCE_SECONDS, "the broker was silent")
        broker.resume()
        caught_up.result()
    assert size < file.stat().st_size, "it was paused too late"
    assert copied(tmp_path) == values(1, 5_000)


def test_without_a_subscription_nothing_is_compared(new_export: Callable[[], TopicExport]) -> None:
    with pytest.raises(TransportRefused, match="`simulate` subscribes before it writes"):
        new_export().catch_up()


def test_a_session_that_the_broker_has_lost_is_refused(own_server: Callable[..., Any], tmp_path: Path) -> None:
    """Messages may be missing then, and to compare what is left would tell of losses that were none."""
    topics = Topics.fresh(own_server(MosquittoServer, MosquittoSettings(options=["persistence false"])).start())
    export = TopicExport(topics.settings(), topics.name, tmp_path)
    export.subscribe()
    topics.server.kill()
    with pytest.raises(TransportUnavailable):
        export.catch_up()
    topics.server.start()
    with pytest.raises(TransportRefused, match=r"it has no session .* any more, so messages are missing"):
        export.catch_up()
    export.close()


def test_the_preflight_asks_for_login_and_qos_and_sends_nothing(own_server: Callable[..., Any]) -> None:
    options = MosquittoSettings(users={"app": "secret"}, options=["max_qos 1"])
    topics = Topics.fresh(own_server(MosquittoServer, options).start())
    broker = replace(topics.broker, user="app", password="secret")
    with closing(topics.subscriber(username="app", password="secret")) as subscriber:
        preflight_sink(topics.settings(broker=broker))
        assert subscriber.wait_for(0) == []
    with pytest.raises(TransportRefused, match="takes qos 1 at most"):
        preflight_sink(topics.settings(broker=broker, qos=2))
    with pytest.raises(TransportWithheld, match="refuses the login"):
        preflight_sink(topics.settings())
    topics.server.kill()
    with pytest.raises(TransportUnavailable):
        preflight_sink(topics.settings(broker=broker))
