"""What MQTT, JMS and the bridge cost: `python -m benchmarks.brokers [--only bridge]`.

bridge   From MQTT into files, of Artemis and of mosquitto. A bare consumer takes what its socket has, appends the payloads to
         a file, syncs it and acknowledges, all in one thread. The bridge does the same into partition files. Both empty a
         session that was filled before, with the same settings.
jms      From one queue to another. A bare loop of the client takes 500 messages and sends 500 in one transaction, again and
         again. Our source and sink do the same on the same broker: poll, publish with a marker, acknowledge.
"""

import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.utils import BlockingConnection

from benchmarks._runner import Case, Figures, Stopwatch, arguments, directory, measure, wanted
from guardian.headers import SCHEMA_VERSION
from guardian.ports import Channel, OutputRecord, PartitionOutput, Position
from notification_service.bridge.file_start import FileStart
from notification_service.bridge.runner import Bridge
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.jms.settings import JmsSinkSettings, JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.sink import JmsSink
from notification_service.connectors.jms.source import JmsSource
from notification_service.connectors.mqtt.messages import outgoing
from notification_service.connectors.mqtt.settings import BrokerSettings, MqttSourceSettings
from notification_service.connectors.mqtt.source import MqttSource
from notification_service.connectors.optional_clients import connect_mqtt
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from servers.artemis import ArtemisServer, ArtemisSettings
from servers.lease import leased
from servers.mosquitto import MosquittoServer
from servers.server import LOOPBACK

UNITS = 1_000
EXPIRY_SECONDS = 3_600
UNDER_WAY = 200
AT_ONCE = 500
SECONDS = 60


class Work:
    """A session at a broker of this port, and a place for what is taken from it."""

    def __init__(self, port: int, queue_size: int, place: Path) -> None:
        self.port, self.queue_size, self.place = port, queue_size, place
        self.name = uuid4().hex

    @property
    def settings(self) -> MqttSourceSettings:
        session = {"session_expiry_ms": 1_000 * EXPIRY_SECONDS, "queue_size": self.queue_size}
        return MqttSourceSettings(f"mqtt://{LOOPBACK}:{self.port}", client_id=self.name, topics=(f"{self.name}/#",), **session)

    def fill(self, bodies: Sequence[bytes]) -> None:
        MqttSource(self.settings).close()
        connection = connect_mqtt(BrokerSettings(f"mqtt://{LOOPBACK}:{self.port}"))
        for at, body in enumerate(bodies):
            connection.publish(outgoing(f"{self.name}/events", None, ((SCHEMA_VERSION, b"2"),), body), 1)
            if at >= UNDER_WAY:
                connection.next_confirmation()
        for _ in range(min(UNDER_WAY, len(bodies))):
            connection.next_confirmation()
        connection.close()


def bare_consumer(work: Work, count: int) -> None:
    came: list[Any] = []
    client = Client(CallbackAPIVersion.VERSION2, work.name, protocol=MQTTv5, manual_ack=True, reconnect_on_failure=False)
    client.on_message = lambda _client, _data, message: came.append(message)
    asked = Properties(PacketTypes.CONNECT)
    asked.SessionExpiryInterval, asked.ReceiveMaximum = EXPIRY_SECONDS, work.queue_size
    client.connect(LOOPBACK, work.port, clean_start=False, properties=asked)
    with (work.place / "bare").open("ab", buffering=0) as file:
        done = 0
        while done < count:
            client.loop(0.5)
            while len(came) < work.queue_size and select.select([client.socket()], [], [], 0)[0]:
                client.loop_read()
            if came:
                file.write(b"".join(message.payload + b"\n" for message in came))
                os.fsync(file.fileno())
                for message in came:
                    client.ack(message.mid, message.qos)
                done += len(came)
                came.clear()
    client.disconnect()


def bridge(work: Work, count: int) -> None:
    ours = Bridge(
        lambda: MqttSource(work.settings),
        lambda: FileStart(work.place / "in", SystemFiles()),
        lambda ms: time.sleep(ms / 1_000),
    )
    while ours.report().appended < count:
        ours.turn()
    ours.close()


def measured_bridge(run: Callable[[Work, int], None], port: int, queue_size: int, bodies: Sequence[bytes]) -> Figures:
    with directory(Path()) as place:
        work = Work(port, queue_size, place)
        work.fill(bodies)
        watch = Stopwatch()
        run(work, len(bodies))
        return watch.spent().of_each(len(bodies))


def body_of(number: int, size: int) -> bytes:
    """Return the value of an envelope of about that many bytes."""
    head = b'{"flow":"F","sequence":%d,"processingContext":{"unitOfWorkId":"unit-%d"},"customObjects":[{"key":"pad","value":"'
    begun = head % (number, number % UNITS)
    return begun + b"x" * max(0, size - len(begun) - 4) + b'"}]}'


class Inbox(MessagingHandler):
    """What has come through the bare loop's link."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.came: deque[tuple[Message, Any]] = deque()

    def on_message(self, event: Any) -> None:
        self.came.append((event.message, event.delivery))
        event.container.yield_()


class Outcome(MessagingHandler, TransactionHandler):
    """How far a transaction of the bare loop is."""

    def __init__(self) -> None:
        super().__init__(auto_settle=False)
        self.transaction: Any = None
        self.is_committed = False

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction

    def on_transaction_committed(self, _: Any) -> None:
        self.is_committed = True


def fill(url: str, queue: str, count: int, body: str) -> None:
    connection = BlockingConnection(url, timeout=SECONDS)
    sender = connection.create_sender(queue, name=uuid4().hex)
    deliveries = [sender.link.send(Message(id=f"ID:{uuid4()}", body=body, durable=True)) for _ in range(count)]
    connection.wait(lambda: deliveries[-1].settled)
    connection.close()


def bare_loop(url: str, name: str, count: int) -> None:
    connection = BlockingConnection(url, timeout=SECONDS)
    inbox, shared = Inbox(), Outcome()
    receiver = connection.create_receiver(f"{name}-IN", credit=AT_ONCE, handler=inbox, name=uuid4().hex)
    sender = connection.create_sender(f"{name}-OUT", handler=MessagingHandler(auto_settle=False), name=uuid4().hex)
    for _ in range(count // AT_ONCE):
        connection.wait(lambda: len(inbox.came) >= AT_ONCE)
        shared.transaction, shared.is_committed = None, False
        connection.container.declare_transaction(connection.conn, handler=shared, settle_before_discharge=True)
        connection.wait(lambda: shared.transaction)
        sent = []
        for _ in range(AT_ONCE):
            message, delivery = inbox.came.popleft()
            shared.transaction.accept(delivery)
            sent.append(shared.transaction.send(sender.link, Message(id=message.id, body=message.body, durable=True)))
        connection.wait(
            lambda sent=sent: all(each.remote_state for each in sent[-1:]) and all(each.remote_state for each in sent)
        )
        shared.transaction.commit()
        connection.wait(lambda: shared.is_committed)
        receiver.link.flow(AT_ONCE)
    connection.close()


def source_and_sink(url: str, name: str, count: int) -> None:
    one = Partition(f"{name}-IN", 0)
    source = JmsSource(JmsSourceSettings(url, partitions=[QueuePartition(one.topic)], window=AT_ONCE))
    names = {"notifications": f"{name}-OUT", "dead_letters": f"{name}-DEAD", "markers": f"{name}-MARKERS"}
    sink = JmsSink(JmsSinkSettings(url, **names), SystemClock())
    sink.position(one)
    source.seek(one, 0)
    done = 0
    while done < count:
        records = source.poll(AT_ONCE, 1_000).records
        if not records:
            continue
        output = tuple(
            OutputRecord(number, Channel.NOTIFICATIONS, None, (), each.value) for number, each in enumerate(records, done + 1)
        )
        done += len(records)
        position = Position(records[-1].origin.offset + 1, "")
        sink.publish([PartitionOutput(one, output, position)])
        source.acknowledge({one: position})
    source.close()
    sink.close()


def measured_jms(run: Callable[[str, str, int], None], url: str, count: int, body: str) -> Figures:
    name = uuid4().hex
    fill(url, f"{name}-IN", count, body)
    watch = Stopwatch()
    run(url, name, count)
    return watch.spent().of_each(count)


def main() -> None:
    chosen = arguments(__doc__, messages=10_000, bytes=1_000, queue_size=50, rounds=3)
    count = max(1, chosen.messages // AT_ONCE) * AT_ONCE
    bodies = [body_of(number, chosen.bytes) for number in range(count)]
    with directory() as parent, leased(parent / "servers") as place:
        artemis = ArtemisServer(place / "artemis", ArtemisSettings(java_options=("-Xmx1g",))).start()
        servers: list[Any] = [artemis]
        if wanted(chosen, "bridge, mosquitto"):
            servers.append(MosquittoServer(place / "mosquitto").start())
        cases = []
        for each in servers:
            port, bare = int(each.mqtt_url.rpartition(":")[2]), f"bridge, {each.name}, bare consumer"
            cases.append(Case(bare, partial(measured_bridge, bare_consumer, port, chosen.queue_size, bodies)))
            ours = partial(measured_bridge, bridge, port, chosen.queue_size, bodies)
            cases.append(Case(f"bridge, {each.name}", ours, bare))
        cases.append(Case("jms, bare loop", partial(measured_jms, bare_loop, artemis.url, count, "x" * chosen.bytes)))
        ours = partial(measured_jms, source_and_sink, artemis.url, count, "x" * chosen.bytes)
        cases.append(Case("jms, source and sink", ours, "jms, bare loop"))
        measure(chosen, cases)
        for each in servers:
            each.stop()


if __name__ == "__main__":
    main()
