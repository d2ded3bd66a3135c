"""A copy of the output queues takes nothing away, and goes on where it was."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from harness.waiting import wait_until

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportRefused, TransportUnavailable
from notification_service.connectors.jms.preflight import preflight_sink, preflight_source
from notification_service.connectors.jms.queue_export import QueueExport
from notification_service.connectors.jms.settings import JmsSinkSettings, JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.sink import JmsSink
from notification_service.connectors.line_format import decode_line
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from servers.artemis import ArtemisServer, ArtemisSettings

pytestmark = pytest.mark.slow

ONE = Partition("E", 0)
SILENCE_SECONDS = 3


@pytest.fixture
def settings(artemis: ArtemisServer, fresh_name: Callable[[str], str]) -> JmsSinkSettings:
    return fresh_settings(artemis, fresh_name)


def fresh_settings(broker: ArtemisServer, fresh_name: Callable[[str], str]) -> JmsSinkSettings:
    names = {"notifications": fresh_name("out"), "dead_letters": fresh_name("dead"), "markers": fresh_name("markers")}
    return JmsSinkSettings(broker.url, **names)


def send(settings: JmsSinkSettings, *numbers: int) -> None:
    records = tuple(
        OutputRecord(each, Channel.NOTIFICATIONS, b"key", (("notification-id", b"%d" % each),), b'{"n":%d}' % each)
        for each in numbers
    )
    with closing(JmsSink(settings, SystemClock())) as sink:
        sink.position(ONE)
        sink.publish([PartitionOutput(ONE, records, Position(numbers[-1], f"m{numbers[-1]}"))])


def copied(directory: Path) -> list[tuple[bytes | None, bytes]]:
    lines = (directory / "notifications.jsonl").read_bytes().splitlines()
    return [(line.key, line.value) for line in map(decode_line, lines)]  # type: ignore[union-attr]


def test_what_is_there_is_copied_once_and_stays_there(settings: JmsSinkSettings, tmp_path: Path) -> None:
    send(settings, *range(1, 1_501))
    with closing(QueueExport(settings, tmp_path)) as export:
        export.catch_up()
        assert copied(tmp_path) == [(b"key", b'{"n":%d}' % each) for each in range(1, 1_501)]
        export.catch_up()
        send(settings, 1_501, 1_502)
        export.catch_up()
    assert [value for _, value in copied(tmp_path)][1_499:] == [b'{"n":1500}', b'{"n":1501}', b'{"n":1502}']
    again = tmp_path / "again"
    again.mkdir()
    with closing(QueueExport(settings, again)) as export:
        export.catch_up()
    assert copied(again) == copied(tmp_path)


def test_a_broker_that_is_silent_for_a_while_has_not_sent_the_whole_queue(
    struck_server: Callable[..., ArtemisServer], fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    broker = struck_server(ArtemisServer)
    settings = fresh_settings(broker, fresh_name)
    for first in range(1, 20_001, 1_000):
        send(settings, *range(first, first + 1_000))
    with closing(QueueExport(settings, tmp_path)) as export, ThreadPoolExecutor(1) as beside:
        caught_up = beside.submit(export.catch_up)
        wait_until(lambda: (tmp_path / "notifications.jsonl").stat().st_size > 0, "it has begun", look_seconds=0)
        broker.pause()
        paused_at, size = monotonic(), (tmp_path / "notifications.jsonl").stat().st_size
        wait_until(lambda: monotonic() > paused_at + SILENCE_SECONDS, "the broker was silent")
        broker.resume()
        caught_up.result()
    assert size < (tmp_path / "notifications.jsonl").stat().st_size, "it was paused too late"
    assert [value for _, value in copied(tmp_path)] == [b'{"n":%d}' % each for each in range(1, 20_001)]


def test_check_connect_names_what_a_broker_refuses(own_server: Callable[..., ArtemisServer]) -> None:
    queues = dict.fromkeys(("in", "out", "dead", "markers", "CLOSED"), False)
    strict = ArtemisSettings(users={"me": "secret"}, closed=("CLOSED",), queues=queues, creates_queues=False)
    broker = own_server(ArtemisServer, strict)
    broker.start()
    mine, names = (broker.url, "me", "secret"), {"notifications": "out", "dead_letters": "dead", "markers": "markers"}
    preflight_source(JmsSourceSettings(*mine, partitions=(QueuePartition("in", "part = 0"),)))
    preflight_sink(JmsSinkSettings(*mine, **names))
    with pytest.raises(ExceptionGroup) as refused:
        preflight_source(JmsSourceSettings(*mine, partitions=(QueuePartition("in", "part ="), QueuePartition("missing"))))
    selector, queue = map(str, refused.value.exceptions)
    assert "Correct the selector" in selector
    assert "queue missing: amqp:not-found" in queue
    with pytest.raises(ExceptionGroup) as refused:
        preflight_sink(JmsSinkSettings(*mine, **{**names, "notifications": "CLOSED"}))
    (right,) = map(str, refused.value.exceptions)
    assert "queue CLOSED: amqp:unauthorized-access" in right
    with pytest.raises(TransportRefused, match="refuses the login"):
        preflight_sink(JmsSinkSettings(broker.url, "me", "wrong", **names))
    broker.kill()
    with pytest.raises(TransportUnavailable):
        preflight_sink(JmsSinkSettings(*mine, **names))
