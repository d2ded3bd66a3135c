"""A copy of the output queues takes nothing away, and goes on where it was."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from harness.waiting import wait_until

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportRefused, TransportUnavailable
from notification_service.connectors.jms.preflight import preflight_sink, preflight_source
from notification_service.connectors.jms.queue_export import QueueExport
from notification_service.connectors.jms.settings import BrokerSettings, JmsSinkSettings, JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.sink import JmsSink
from notification_service.connectors.line_format import decode_line
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from servers.artemis import ArtemisServer, ArtemisSettings

pytestmark = pytest.mark.slow

ONE = Partition("E", 0)


@pytest.fixture
def settings(artemis: ArtemisServer, fresh_name: Callable[[str], str]) -> JmsSinkSettings:
    return JmsSinkSettings(BrokerSettings(artemis.url), fresh_name("out"), fresh_name("dead"), fresh_name("markers"))


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


def catch_up(export: QueueExport, directory: Path, count: int) -> None:
    """Copy what is there until it is as much: on a busy machine a broker may be silent in between."""

    def look() -> bool:
        export.catch_up()
        return len(copied(directory)) >= count

    wait_until(look, "all that was sent is there")


def test_what_is_there_is_copied_once_and_stays_there(settings: JmsSinkSettings, tmp_path: Path) -> None:
    send(settings, *range(1, 1_501))
    with closing(QueueExport(settings, tmp_path)) as export:
        catch_up(export, tmp_path, 1_500)
        assert copied(tmp_path) == [(b"key", b'{"n":%d}' % each) for each in range(1, 1_501)]
        export.catch_up()
        send(settings, 1_501, 1_502)
        catch_up(export, tmp_path, 1_502)
    assert [value for _, value in copied(tmp_path)][1_499:] == [b'{"n":1500}', b'{"n":1501}', b'{"n":1502}']
    again = tmp_path / "again"
    again.mkdir()
    with closing(QueueExport(settings, again)) as export:
        catch_up(export, again, 1_502)
    assert copied(again) == copied(tmp_path)


def test_check_connect_names_what_a_broker_refuses(own_server: Callable[..., ArtemisServer]) -> None:
    queues = dict.fromkeys(("in", "out", "dead", "markers", "CLOSED"), False)
    strict = ArtemisSettings(users={"me": "secret"}, closed=("CLOSED",), queues=queues, creates_queues=False)
    broker = own_server(ArtemisServer, strict)
    broker.start()
    mine = BrokerSettings(broker.url, "me", "secret")
    preflight_source(JmsSourceSettings(mine, (QueuePartition("in", "part = 0"),)))
    preflight_sink(JmsSinkSettings(mine, "out", "dead", "markers"))
    with pytest.raises(ExceptionGroup) as refused:
        preflight_source(JmsSourceSettings(mine, (QueuePartition("in", "part ="), QueuePartition("missing"))))
    selector, queue = map(str, refused.value.exceptions)
    assert "Correct the selector" in selector
    assert "queue missing: amqp:not-found" in queue
    with pytest.raises(ExceptionGroup) as refused:
        preflight_sink(JmsSinkSettings(mine, "CLOSED", "dead", "markers"))
    (right,) = map(str, refused.value.exceptions)
    assert "queue CLOSED: amqp:unauthorized-access" in right
    with pytest.raises(TransportRefused, match="refuses the login"):
        preflight_sink(JmsSinkSettings(BrokerSettings(broker.url, "me", "wrong"), "out", "dead", "markers"))
    broker.kill()
    with pytest.raises(TransportUnavailable):
        preflight_sink(JmsSinkSettings(mine, "out", "dead", "markers"))
