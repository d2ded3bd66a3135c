"""A broker that is killed, frozen or restarted at the worst moments, and a worker that computes for long."""

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from harness.nightly import at_night
from harness.waiting import DEADLINE_SECONDS, wait_until
from proton import Connection, Transport

from guardian.ports import Channel, NotPublished, PublishRefused, TransportUnavailable
from notification_service.connectors.jms import sending
from notification_service.connectors.jms.connection import Io, JmsConnection
from notification_service.connectors.jms.receiving_link import ReceivingLink
from notification_service.connectors.jms.sending import Sending
from notification_service.connectors.jms.source import JmsSource
from notification_service.connectors.jms.transaction import Transaction
from resequencer.record import Partition
from servers.artemis import ArtemisServer, ArtemisSettings
from tests.notification_service.connectors.jms.stage import Queues, message
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notifications, output
from tests.notification_service.connectors.region.source_contract import Intake

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]
ONE = PARTITIONS[0]
IMPATIENT = (2_000, 3_000)
"""The time limits, in ms, of a heartbeat and of an answer, where a broker stands still."""


@pytest.fixture
def server(struck_server: OwnServer) -> ArtemisServer:
    made: ArtemisServer = struck_server(ArtemisServer)
    return made


def patiently(call: Callable[[], None]) -> list[Exception]:
    """Repeat the same call until it succeeds, as the guardian does; return the errors."""
    errors: list[Exception] = []

    def attempt() -> bool:
        try:
            call()
        except TransportUnavailable as error:
            errors.append(error)
            return False
        return True

    wait_until(attempt, "the call")
    return errors


def taken_again(queues: Queues, partition: Partition, checkpoint: tuple[int, str]) -> Intake:
    """Take the partition over with another source, as soon as the broker is there."""
    again = Intake(queues.source())
    patiently(lambda: again.seek(partition, *checkpoint))
    return again


def strikes(monkeypatch: pytest.MonkeyPatch, kind: object, name: str, strike: Callable[[], None], *, before: bool) -> None:
    """Let `strike` happen once, right before or after the call of this method."""
    real, left = getattr(kind, name), [strike]

    def struck(*arguments: Any, **named: Any) -> Any:
        if before and left:
            left.pop()()
        answer = real(*arguments, **named)
        if not before and left:
            left.pop()()
        return answer

    monkeypatch.setattr(kind, name, struck)


def test_a_send_error_between_the_last_record_and_the_commit_leaves_nothing(server: ArtemisServer, monkeypatch) -> None:
    queues = Queues.fresh(server)
    sink = queues.sink()
    sink.position(ONE)
    sink.publish([output(ONE, notifications(1, 2), 2)])
    # All records were taken by the broker, and the commit was not sent.
    strikes(monkeypatch, Transaction, "commit", restarted(server), before=True)
    records = notifications(1, 600)
    errors = patiently(lambda: sink.publish([output(ONE, records, 600)]))
    assert errors
    sink.close()
    assert [each.value for each in queues.left(Channel.NOTIFICATIONS, 600)] == [each.value for each in records]


def test_a_failure_before_the_commit_says_that_nothing_left(server: ArtemisServer, monkeypatch) -> None:
    queues = Queues.fresh(server)
    sink = queues.sink()
    sink.position(ONE)
    strikes(monkeypatch, sending, "await_outcomes", server.kill, before=True)
    with pytest.raises(NotPublished):
        sink.publish([output(ONE, notifications(1, 3), 3)])
    server.start()
    # So the next publication may be another one.
    patiently(lambda: sink.publish([output(ONE, notifications(1, 1, "less"), 1)]))
    sink.close()
    assert [each.value for each in queues.left(Channel.NOTIFICATIONS, 1)] == [b'{"less":1}']


@pytest.mark.parametrize("moment", [5, *at_night("brokers", *range(5))])
def test_a_broker_killed_in_a_publication_leaves_each_record_once(server: ArtemisServer, monkeypatch, moment: int) -> None:
    queues = Queues.fresh(server)
    sink = queues.sink()
    sink.position(ONE)
    sink.publish([output(ONE, notifications(1, 5), 5)])
    kind, name, before = [
        (Sending, "fetch", True),
        (Sending, "fetch", False),
        (Io, "transaction", False),
        (sending, "await_outcomes", False),
        (Transaction, "commit", True),
        (Transaction, "commit", False),
    ][moment]
    strikes(monkeypatch, kind, name, restarted(server), before=before)
    records = notifications(1, 500)
    patiently(lambda: sink.publish([output(ONE, records, 500)]))
    assert sink.position(ONE).highest == 500
    sink.close()
    assert [each.value for each in queues.left(Channel.NOTIFICATIONS, 500)] == [each.value for each in records]
    assert len(queues.markers()) == 1


def test_an_answer_that_is_lost_after_the_commit_is_found_in_the_marker(server: ArtemisServer, monkeypatch) -> None:
    queues = Queues.fresh(server)
    sink = queues.sink()
    sink.position(ONE)
    real = Io.wait

    def no_answer(io: Io, condition: Callable[[], object], what: str, seconds: float | None = None) -> None:
        real(io, condition, what, seconds)
        if what == "the transaction":
            raise TransportUnavailable("the answer is lost")

    monkeypatch.setattr(Io, "wait", no_answer)
    with pytest.raises(TransportUnavailable) as raised:
        sink.publish([output(ONE, notifications(1, 3), 3)])
    assert not isinstance(raised.value, NotPublished)
    monkeypatch.setattr(Io, "wait", real)
    sink.publish([output(ONE, notifications(1, 3), 3)])
    sink.publish([output(ONE, notifications(4, 1), 4)])
    sink.close()
    assert len(queues.left(Channel.NOTIFICATIONS)) == 4


@pytest.mark.parametrize("moment", [3, *at_night("brokers", *range(3))])
def test_a_broker_killed_in_an_acknowledgement_brings_nothing_twice(server: ArtemisServer, monkeypatch, moment: int) -> None:
    queues = Queues.fresh(server)
    one = queues.partitions()[0]
    queues.send_to(0, *[b"%d" % each for each in range(800)])
    read = Intake(queues.source())
    read.seek(one)
    read.read(400)
    checkpoint = read.checkpoint(one)
    kind, name, before = [
        (Io, "transaction", True),
        (ReceivingLink, "accept_all", False),
        (Transaction, "commit", True),
        (Transaction, "commit", False),
    ][moment]
    strikes(monkeypatch, kind, name, restarted(server), before=before)
    with pytest.raises(TransportUnavailable):
        read.acknowledge(one)
    # The acknowledgement cannot be repeated: the messages come again to the owner, who takes the partition over anew.
    with pytest.raises(PublishRefused):
        patiently(lambda: read.acknowledge(one))
    read.source.close()
    again = taken_again(queues, one, checkpoint)
    assert again.read(400) == [b"%d" % each for each in range(400, 800)]
    assert again.read_all() == [b"%d" % each for each in range(400, 800)]
    again.acknowledge(one)
    again.source.close()
    assert queues.browse(queues.events) == []


def test_a_lost_connection_leaves_its_partitions_out_once_and_they_are_taken_over_anew(server: ArtemisServer) -> None:
    queues = Queues.fresh(server)
    one, two = queues.partitions()
    queues.send_to(0, b"1", b"2")
    source = queues.source()
    read = Intake(source)
    for each in (one, two):
        read.seek(each)
    read.read(2)
    server.kill()
    wait_until(lambda: read.poll().log_ends == {}, "the loss")
    with pytest.raises(PublishRefused):
        source.check_owned([one])
    assert source.assignment() == []
    assert source.assignment() == [one, two]
    with pytest.raises(TransportUnavailable):
        read.seek(one)
    server.start()
    read.records.clear()
    read.seek(one)
    assert read.read(2) == [b"1", b"2"]
    source.close()


def test_a_connection_lost_right_before_an_acknowledgement_leaves_its_partitions_out(server: ArtemisServer, monkeypatch) -> None:
    queues = Queues.fresh(server)
    one = queues.partitions()[0]
    queues.send_to(0, b"1")
    source = queues.source()
    read = Intake(source)
    read.seek(one)
    read.read(1)
    connection = source._connection

    def lose() -> None:
        restarted(server)()
        wait_until(lambda: connection.is_lost, "the loss")

    strikes(monkeypatch, JmsSource, "_accept", lose, before=True)
    with pytest.raises(TransportUnavailable):
        read.acknowledge(one)
    assert one not in source.assignment()
    assert one in source.assignment()
    read.seek(one)
    assert read.read(2) == [b"1", b"1"]
    source.close()


def test_errors_of_an_old_connection_have_no_effect_after_a_reset(server: ArtemisServer) -> None:
    queues = Queues.fresh(server, *IMPATIENT)
    one = queues.partitions()[0]
    queues.send_to(0, b"1")
    read = Intake(queues.source())
    read.seek(one)
    read.read(1)
    old = read.source._connection
    server.pause()
    with pytest.raises(TransportUnavailable):
        read.acknowledge(one)
    server.resume()
    wait_until(lambda: read.source.assignment() or None, "the loss to be noticed")
    read.records.clear()
    patiently(lambda: read.seek(one))
    assert read.source._connection is not old
    # The old one ends, and learns that so late that the new one works already.
    old.close()
    old._problem = TransportUnavailable("too late")
    old.arrived.set()
    assert read.read(1) == [b"1"]
    read.acknowledge(one)
    read.source.close()
    assert queues.browse(queues.events) == []


def test_a_frozen_broker_is_unavailable_in_bounded_time_and_is_used_again(server: ArtemisServer) -> None:
    queues = Queues.fresh(server, *IMPATIENT)
    sink, source = queues.sink(), queues.source()
    sink.position(ONE)
    source.seek(queues.partitions()[0], 0)
    server.pause()
    began_at = monotonic()
    with pytest.raises(TransportUnavailable):
        sink.publish([output(ONE, notifications(1, 1), 1)])
    wait_until(lambda: source.poll(1, 100).log_ends == {}, "the loss")
    assert monotonic() - began_at < 60
    server.resume()
    patiently(lambda: sink.publish([output(ONE, notifications(1, 1), 1)]))
    queues.send_to(0, b"1")
    patiently(lambda: source.seek(queues.partitions()[0], 0))
    (record,) = wait_until(lambda: source.poll(1, 100).records, "the message")
    assert record.value == b"1"
    source.close()
    sink.close()
    assert len(queues.left(Channel.NOTIFICATIONS)) == 1


def test_heartbeats_go_on_while_the_worker_computes(own_server: OwnServer) -> None:
    """The broker closes a connection that is silent for 2 s. It closes two others, so that much time has passed."""
    server = own_server(ArtemisServer, ArtemisSettings(idle_ms=2_000)).start()
    queues = Queues.fresh(server)
    one = queues.partitions()[0]
    queues.send_to(0, b"1")
    read = Intake(queues.source())
    read.seek(one)
    read.read(1)
    for _ in range(2):
        wait_until_closed(server)
    read.acknowledge(one)
    queues.send(message("2"))
    assert read.read(2) == [b"1", b"2"]
    read.source.close()


def wait_until_closed(server: ArtemisServer) -> None:
    """Open a connection that is silent from then on, and wait until the broker has closed it."""
    opening, transport = Connection(), Transport()
    transport.bind(opening)
    opening.container = "silent"
    opening.open()
    with socket.create_connection(("127.0.0.1", server.ports["artemis"]), DEADLINE_SECONDS) as silent:
        silent.sendall(transport.peek(4_096))
        while silent.recv(4_096):
            pass


def left_open() -> Counter[str]:
    """Return how many files and threads this process has."""
    return Counter(files=len(os.listdir("/proc/self/fd")), threads=threading.active_count())


def test_a_connection_that_is_made_again_and_again_leaves_nothing_open(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    before = left_open()
    for _ in range(20):
        source = queues.source()
        source.seek(queues.partitions()[0], 0)
        source.poll(1, 1)
        source.close()
    wait_until(lambda: left_open() <= before, "nothing is left open")


def test_a_link_that_is_given_up_leaves_none_of_its_messages_behind(artemis: ArtemisServer) -> None:
    queues = Queues.fresh(artemis)
    queues.send_to(0, *[f"m{number}" for number in range(5)])
    source = queues.source(count=1)
    links: list[ReceivingLink] = []
    for _ in range(20):
        source.seek(queues.partitions()[0], 0)
        links.append(source._readings[queues.partitions()[0]].link)
        wait_until(lambda: links[-1].waiting == 5, "the messages")
        source.poll(1, 0)
    assert [len(each._came) for each in links[:-1]] == [0] * 19
    assert source._connection is not None
    assert source._connection.call(lambda io: len(io._forgetful)) == 1
    source.close()


def test_a_connection_that_has_ended_writes_to_no_file_that_was_opened_since(artemis: ArtemisServer, tmp_path: Path) -> None:
    connection = JmsConnection(Queues.fresh(artemis).broker)
    connection.close()
    files = [(tmp_path / str(number)).open("wb") for number in range(20)]
    connection.close()
    connection._waker.wake()
    for each in files:
        each.close()
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [0] * 20


def test_connections_to_a_frozen_broker_leave_nothing_open(server: ArtemisServer) -> None:
    queues = Queues.fresh(server, *IMPATIENT)
    queues.send_to(0, b"1")
    before = left_open()
    for _ in range(3):
        source = queues.source()
        patiently(lambda source=source: source.seek(queues.partitions()[0], 0))
        wait_until(lambda source=source: source.poll(1, 100).records, "the message")
        server.pause()
        with pytest.raises(TransportUnavailable):
            source.seek(queues.partitions()[0], 0)
        server.resume()
        source.close()
    wait_until(lambda: left_open() <= before, "nothing is left open")


def test_a_source_without_a_connection_waits_instead_of_computing(artemis: ArtemisServer, monkeypatch) -> None:
    waits: list[float | None] = []
    source = Queues.fresh(artemis).source()
    monkeypatch.setattr(source._woken, "wait", waits.append)
    assert source.poll(1, 300).records == ()
    assert waits == [0.3]


def restarted(server: ArtemisServer) -> Callable[[], None]:
    def strike() -> None:
        server.kill()
        server.start()

    return strike
