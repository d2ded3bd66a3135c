"""What it costs to take from a JMS queue and to send to another: `python -m benchmarks.jms [--help]`.

A bare loop of the client takes 500 messages and sends 500 in one transaction, again and again. Beside it our source and sink do
the same on the same broker: poll, publish with a marker, acknowledge. Both take turns; the ratio is that of the best rounds.
"""

import argparse
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.utils import BlockingConnection

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position
from notification_service.connectors.jms.settings import BrokerSettings, JmsSinkSettings, JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.sink import JmsSink
from notification_service.connectors.jms.source import JmsSource
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from servers.artemis import ArtemisServer, ArtemisSettings
from servers.lease import leased

AT_ONCE = 500
SECONDS = 60


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


def bare(url: str, name: str, count: int) -> None:
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


def ours(url: str, name: str, count: int) -> None:
    broker, one = BrokerSettings(url), Partition(f"{name}-IN", 0)
    source = JmsSource(JmsSourceSettings(broker, [QueuePartition(one.topic)], AT_ONCE))
    sink = JmsSink(JmsSinkSettings(broker, f"{name}-OUT", f"{name}-DEAD", f"{name}-MARKERS"), SystemClock())
    sink.position(one)
    source.seek(one, 0)
    done = 0
    while done < count:
        records = source.poll(AT_ONCE, 1_000).records
        if not records:
            continue
        leave = tuple(
            OutputRecord(number, Channel.NOTIFICATIONS, None, (), each.value) for number, each in enumerate(records, done + 1)
        )
        done += len(records)
        position = Position(records[-1].origin.offset + 1, "")
        sink.publish([PartitionOutput(one, leave, position)])
        source.acknowledge({one: position})
    source.close()
    sink.close()


def measured(work: Callable[[str, str, int], None], url: str, count: int, body: str) -> float:
    """Return messages per second."""
    name = uuid4().hex
    fill(url, f"{name}-IN", count, body)
    began_at = time.perf_counter()
    work(url, name, count)
    return count / (time.perf_counter() - began_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000, help="messages of a round (default: 20000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1_000, help="of a body (default: 1000)")
    given = parser.parse_args()
    count, body = given.messages // AT_ONCE * AT_ONCE, "x" * given.bytes
    best = {"bare loop": 0.0, "source and sink": 0.0}
    with TemporaryDirectory() as directory, leased(Path(directory) / "servers") as place:
        server = ArtemisServer(place / "artemis", ArtemisSettings(java_options=("-Xmx1g",))).start()
        for _ in range(given.rounds):
            for what, work in (("bare loop", bare), ("source and sink", ours)):
                best[what] = max(best[what], measured(work, server.url, count, body))
        server.stop()
    for what, rate in best.items():
        print(f"{what:16} {rate:8.0f} messages/s {rate / best['bare loop']:6.2f}")


if __name__ == "__main__":
    main()
