"""What a JMS source makes of messages, and when it takes which."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from harness.waiting import DEADLINE_SECONDS, wait_until

from guardian.ports import Position
from notification_service.connectors.jms.settings import Missing, QueuePartition
from servers.artemis import ArtemisServer, ArtemisSettings
from tests.notification_service.connectors.jms.stage import Queues, message
from tests.notification_service.connectors.region.source_contract import Intake, offsets, values

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]


def intake(queues: Queues, **settings: Any) -> Intake:
    """Return an intake of partition 0 alone, after its seek."""
    made = Intake(queues.source(1, **settings))
    made.seek(queues.partitions()[0])
    return made


def test_selectors_give_each_partition_its_own_messages_in_order(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send(*[message(str(number), part=number % 3) for number in range(90)])
    read = Intake(queues.source(3))
    for each in queues.partitions(3):
        read.seek(each)
    read.read(90)
    for each in queues.partitions(3):
        assert values(read, each) == [b"%d" % number for number in range(90) if number % 3 == each.number]
    read.source.close()


def test_properties_are_headers_and_the_correlation_id_is_the_key(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    properties = {"schema_version": "2", "traceparent": "00-a", "my_own": 7, "flag": True}
    queues.send(message("text", correlation_id="U1", properties=properties, creation_time=1_700_000_000.5))
    read = intake(queues)
    read.read(1)
    (record,) = read.records
    assert (record.key, record.value, record.written_at) == (b"U1", b"text", 1_700_000_000_500)
    found = dict(record.headers)
    assert found == {"part": b"0", "schema-version": b"2", "traceparent": b"00-a", "my_own": b"7", "flag": b"true"}
    read.source.close()


def test_text_bytes_and_values_are_bodies_no_body_is_null_and_anything_else_is_a_defect(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    data = message(None)
    data.body, data.inferred = b"\x00\xff", True
    value = message(None)
    value.body = b"binary value"
    table = message(None)
    table.body = {"a": 1}
    queues.send(message("täxt"), data, value, message(None), table)
    read = intake(queues)
    read.read(5)
    assert [each.value for each in read.records[:4]] == ["täxt".encode(), b"\x00\xff", b"binary value", None]
    assert [each.defect for each in read.records[:4]] == [None] * 4
    assert "of the kind dict" in str(read.records[4].defect)
    read.source.close()


def test_a_message_without_an_id_is_a_defect_unless_a_digest_stands_for_it(artemis: ArtemisServer) -> None:
    for rule, is_refused in ((Missing.REQUIRED, True), (Missing.DIGEST, False)):
        queues = Queues.fresh(artemis)
        queues.send(message("one", id_=None), message("one", id_=None), message("two"))
        read = intake(queues, message_id=rule)
        assert read.read(3) == [b"one", b"one", b"two"]
        assert ["no message-id" in str(each.defect) for each in read.records] == [is_refused, is_refused, False]
        # Whatever the rule, each of the two is dropped once after a crash.
        checkpoint = read.checkpoint(queues.partitions()[0])
        read.source.close()
        again = Intake(queues.source(1, message_id=rule))
        again.seek(queues.partitions()[0], *checkpoint)
        assert again.read_all() == []
        again.source.close()
        assert queues.browse(queues.events) == []


def test_a_message_of_a_group_is_a_defect_that_says_why(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send(message("one", group_id="G"), message("two"))
    read = intake(queues)
    read.read(2)
    assert "message group (JMSXGroupID)" in str(read.records[0].defect)
    assert read.records[1].defect is None
    read.source.close()


def test_a_value_beyond_the_limit_is_cut(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send(message("x" * 500_000), message("y"))
    read = intake(queues, max_value_bytes=1_000)
    read.read(2)
    assert read.records[0].cut is not None
    assert (read.records[0].cut.length, len(read.records[0].value), read.records[1].value) == (500_000, 1_000, b"y")
    read.source.close()


def test_what_waits_is_bounded_by_its_bytes_and_all_of_it_comes(artemis: ArtemisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    queues.send(*[message(f"{each}" + "x" * 1_000_000) for each in range(60)])
    read = intake(queues)
    link = read.source._readings[one].link
    wait_until(lambda: link.waiting >= 16, "as many as there is room for")
    # Of the 60 that the credit allows, the broker keeps those that have no room here.
    monkeypatch.setattr("notification_service.connectors.jms.receiving_link.monotonic", lambda: monotonic() + 60)
    queues.browse(f"{queues.name}-OTHER")
    assert 16 <= link.waiting <= 18
    assert not link.is_caught_up
    assert [int(each.rstrip(b"x")) for each in read.read(60)] == list(range(60))
    read.acknowledge(one)
    wait_until(lambda: one in read.poll().ends, "the end is known")
    read.source.close()
    assert queues.browse(queues.events) == []


def test_a_partition_that_is_not_read_keeps_no_other_one_waiting(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    resting, other = queues.partitions(2)
    queues.send(*[message("x" * 1_000_000, part=0) for _ in range(40)])
    queues.send_to(1, *[b"%d" % each for each in range(30)])
    read = Intake(queues.source(2))
    for each in (resting, other):
        read.seek(each)
    found: list[bytes] = []

    def come() -> bool:
        found.extend(each.value for each in read.source.poll(500, 50, [resting]).records)
        return len(found) == 30

    wait_until(come, "those of the other partition")
    read.source.close()


def test_a_partition_that_is_taken_over_anew_while_the_broker_waits_gets_all_again_in_order(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    queues.send(*[message(f"{each}" + "x" * 1_000_000) for each in range(40)])
    read = intake(queues)
    for _ in range(3):
        wait_until(lambda: read.source._readings[one].link.waiting >= 16, "as many as there is room for")
        assert read.source.poll(2, 0).records
        read.source.seek(one, 0)
    read.source.close()
    again = intake(queues)
    assert [int(each.rstrip(b"x")) for each in again.read(40)] == list(range(40))
    again.acknowledge(one)
    again.source.close()
    assert queues.browse(queues.events) == []


_TAKES_ONE = """
import sys
from notification_service.connectors.jms.settings import JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.source import JmsSource
from resequencer.record import Partition

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1_024

url, queue = sys.argv[1:]
patient = {"heartbeat_ms": 60_000, "call_timeout_ms": 60_000}
source = JmsSource(JmsSourceSettings(url, **patient, partitions=[QueuePartition(queue)], max_value_bytes=1_000_000))
before = peak()
source.seek(Partition(queue, 0), 0)
while not (polled := source.poll(10, 1_000)).records:
    pass
(record,) = polled.records
print(peak() - before, len(record.value), record.cut.length, record.cut.sha256, record.key.decode(), dict(record.headers)["part"])
source.close()
"""


def test_a_message_beyond_the_limit_is_discarded_as_it_arrives(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    body = os.urandom(1 << 20) * 40  # More would take much of the heap of the broker, which other tests use, too.
    large = message(None, correlation_id="U1")
    large.body, large.inferred = body, True
    queues.send(large)
    command = [sys.executable, "-c", _TAKES_ONE, artemis.url, queues.events]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS)
    grown, *kept = ended.stdout.split()
    assert kept == ["65536", str(len(body)), hashlib.sha256(body).hexdigest(), "U1", "b'0'"]
    assert int(grown) < 25, "of 40 MiB"


def test_no_more_than_the_window_is_taken_before_it_is_acknowledged(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    queues.send_to(0, *[b"%d" % each for each in range(25)])
    read = intake(queues, window=10)
    read.read(10)
    for _ in range(30):
        assert read.poll().records == ()
    assert len(read.states[one]) == 200
    read.acknowledge(one)
    read.read(20)
    read.acknowledge(one)
    assert read.read(25)[20:] == [b"%d" % each for each in range(20, 25)]
    read.source.close()


def test_the_end_is_not_known_while_more_may_lie_in_the_queue(artemis: ArtemisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    queues.send_to(0, *[b"%d" % each for each in range(11)])
    read = intake(queues, window=10)
    read.read(10)
    # A second later it would be known, had the link free credit.
    monkeypatch.setattr("notification_service.connectors.jms.receiving_link.monotonic", lambda: monotonic() + 60)
    polled = read.poll()
    assert (dict(polled.ends), polled.log_ends[one]) == ({}, 11)
    read.acknowledge(one)
    assert len(read.read_all()) == 11
    assert read.ends[one] == read.poll().log_ends[one] == 11
    read.source.close()


def test_a_duplicate_is_judged_by_its_id_and_not_by_its_time(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    same = 1_700_000_000
    queues.send(*[message(f"{each}", id_=f"ID:{each}", creation_time=same) for each in range(4)])
    read = intake(queues)
    read.read(2)
    offset, state = read.checkpoint(one)
    read.acknowledge(one, 1)
    read.source.close()
    again = Intake(queues.source(1))
    again.seek(one, offset, state)
    # All have one time. Of the two ids that are known one comes again, and that message alone is dropped.
    assert again.read(2) == [b"2", b"3"]
    again.acknowledge(one)
    # A message with a known id is known, though its producer sends it once more at another time.
    queues.send(message("0", id_="ID:0", creation_time=same + 9), message("4", creation_time=same))
    assert again.read(3)[2] == b"4"
    again.source.close()


def test_two_messages_with_one_id_are_two_messages(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    queues.send(message("first", id_="ID:same"), message("second", id_="ID:same"))
    read = intake(queues)
    read.read(1)
    checkpoint = read.checkpoint(one)
    read.source.close()
    again = Intake(queues.source(1))
    again.seek(one, *checkpoint)
    assert again.read(1) == [b"second"]
    again.source.close()


def test_what_came_again_gives_its_room_in_the_window_back(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    queues.send_to(0, *[b"%d" % each for each in range(15)])
    read = intake(queues, window=10)
    read.read(10)
    checkpoint = read.checkpoint(one)
    read.source.close()
    again = Intake(queues.source(1, window=10))
    again.seek(one, *checkpoint)
    assert again.read(5) == [b"%d" % each for each in range(10, 15)]
    assert offsets(again, one) == list(range(10, 15))
    again.acknowledge(one)
    again.source.close()
    assert queues.browse(queues.events) == []


def test_two_connections_on_one_partition_lose_nothing_and_share_it(artemis: ArtemisServer) -> None:
    """Two services on one queue: each message goes to one of them, and to the other once the first has gone."""
    queues = Queues.fresh(artemis)
    one = queues.partitions()[0]
    first = intake(queues, window=5)
    queues.send_to(0, *[b"%d" % each for each in range(5)])
    first.read(5)
    second = intake(queues, window=50)
    queues.send_to(0, *[b"%d" % each for each in range(5, 10)])
    assert second.read(5) == [b"%d" % each for each in range(5, 10)]
    assert second.poll().records == ()
    first.source.close()
    second.read(10)
    assert sorted(values(second, one)) == [b"%d" % each for each in range(10)]
    second.acknowledge(one)
    second.source.close()
    assert queues.browse(queues.events) == []


def test_the_partition_of_an_exclusive_queue_is_assigned_to_the_consumer_that_is_served(own_server: OwnServer) -> None:
    server = own_server(ArtemisServer, ArtemisSettings(queues={"ONLY": True})).start()
    queues = Queues.fresh(server)
    only = [QueuePartition("ONLY", is_exclusive=True)]
    first, second = queues.source(partitions=only), queues.source(partitions=only)
    assert list(first.assignment()) == list(second.assignment()) == []
    assert "waiting for a first message" in first.standing().notes[0]
    queues.send(message("one"), message("two"), queue="ONLY")
    (partition,) = wait_until(first.assignment, "the first message")
    assert list(second.assignment()) == []
    read = Intake(first)
    read.seek(partition)
    assert read.read(2) == [b"one", b"two"]
    assert first.standing().notes == ()
    # The seek took no message away from the first: it had taken none. After its end, the other one is served.
    assert list(second.assignment()) == []
    first.acknowledge({partition: Position(1, "")})
    first.close()
    assert wait_until(second.assignment, "the takeover") == [partition]
    read = Intake(second)
    read.seek(partition, 1)
    assert read.read(1) == [b"two"]
    second.close()


def test_a_reordered_list_of_partitions_has_other_names(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    named = [QueuePartition("A", "part = 0"), QueuePartition("A"), QueuePartition("B")]
    source = queues.source(partitions=named)
    assert [source.source(each) for each in source.assignment()] == ["A where part = 0", "A", "B"]
