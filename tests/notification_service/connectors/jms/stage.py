"""A broker's queues for tests: writes envelopes, reads what has left, and makes sources and sinks."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from harness.waiting import DEADLINE_SECONDS, wait_until
from msgspec.structs import asdict
from proton import Message
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection

from guardian.ports import Channel
from notification_service.connectors.jms.messages import read_record
from notification_service.connectors.jms.settings import (
    BrokerSettings,
    JmsSinkSettings,
    JmsSourceSettings,
    QueuePartition,
    XmsSinkSettings,
)
from notification_service.connectors.jms.sink import JmsSink, XmsSink
from notification_service.connectors.jms.source import JmsSource
from resequencer.record import Origin, Partition, Record
from servers.artemis import ArtemisServer

PATIENT_MS = 60_000


class Clock:
    def now(self) -> int:
        return int(time.time() * 1000)


class Queues(NamedTuple):
    """The queues of one test on a broker. Partitions are those messages of `events` whose property `part` is their number."""

    server: ArtemisServer
    name: str
    heartbeat_ms: int
    call_ms: int

    @classmethod
    def fresh(cls, server: ArtemisServer, heartbeat_ms: int = PATIENT_MS, call_ms: int = PATIENT_MS) -> "Queues":
        """With the defaults a broker counts as lost only if it closes the connection."""
        return cls(server, f"Q-{uuid4().hex[:12]}", heartbeat_ms, call_ms)

    @property
    def events(self) -> str:
        return f"{self.name}-EVENTS"

    @property
    def broker(self) -> BrokerSettings:
        return BrokerSettings(self.server.url, heartbeat_ms=self.heartbeat_ms, call_timeout_ms=self.call_ms)

    def partitions(self, count: int = 2) -> list[Partition]:
        return [Partition(self.events, each) for each in range(count)]

    def source(self, count: int = 2, **settings: Any) -> JmsSource:
        queues = [QueuePartition(self.events, f"part = {each}") for each in range(count)]
        return JmsSource(JmsSourceSettings(**{**asdict(self.broker), "partitions": queues, **settings}))

    def sink(self, **settings: Any) -> JmsSink:
        names = {"notifications": f"{self.name}-N", "dead_letters": f"{self.name}-D", "markers": f"{self.name}-M"}
        return JmsSink(JmsSinkSettings(**{**asdict(self.broker), **names, **settings}), Clock())

    def xms_sink(self) -> XmsSink:
        names = {"notifications": f"{self.name}-N", "dead_letters": f"{self.name}-D"}
        return XmsSink(XmsSinkSettings(**asdict(self.broker), **names), Clock())

    def send(self, *messages: Message, queue: str | None = None) -> None:
        """Send messages; each is on the broker's disk afterwards."""
        connection = BlockingConnection(self.server.url, timeout=DEADLINE_SECONDS)
        link = connection.create_sender(queue or self.events, name=uuid4().hex)
        deliveries = [link.link.send(each) for each in messages]
        connection.wait(lambda: all(each.remote_state for each in deliveries[-1:]) and all(each.settled for each in deliveries))
        connection.close()

    def send_to(self, part: int, *values: bytes | str) -> None:
        self.send(*[message(each, part=part) for each in values])

    def browse(self, queue: str, count: int = 0, selector: str = "") -> list[Record]:
        """Return the records in a queue, which stay there; wait until there are `count`."""
        found: list[Message] = []

        def are_there() -> bool:
            found[:] = self._all_in(queue, selector, [Copy()])
            return len(found) >= count

        wait_until(are_there, f"{count} messages")
        origins = [Origin(Partition(queue, 0), number) for number in range(len(found))]
        return [read_record(at, each, b"", 1 << 30, needs_id=True) for at, each in zip(origins, found, strict=True)]

    def drain(self, queue: str) -> list[bytes]:
        """Take all messages away from a queue; return their bodies."""
        return [str(each.body).encode() for each in self._all_in(queue)]

    def _all_in(self, queue: str, selector: str = "", options: Sequence[Any] = ()) -> list[Message]:
        """Return what is in a queue now: what comes before a message that is sent to it now, and taken away again."""
        mark = uuid4().hex
        is_mark = f"mark = '{mark}'"
        self.send(Message(id=mark, properties={"mark": mark}), queue=queue)
        connection = BlockingConnection(self.server.url, timeout=DEADLINE_SECONDS)
        chosen = [Selector(f"{is_mark} OR ({selector})")] if selector else []
        link = connection.create_receiver(queue, credit=20_000, name=uuid4().hex, options=[*options, *chosen])
        found: list[Message] = []
        while (got := link.receive()).id != mark:
            found.append(got)
            link.accept()
        link.accept()
        link.close()
        if options:
            marks = connection.create_receiver(queue, name=uuid4().hex, options=Selector(is_mark))
            marks.receive()
            marks.accept()
        connection.close()
        return found

    def left(self, channel: Channel, count: int = 0) -> list[Record]:
        names = {Channel.NOTIFICATIONS: f"{self.name}-N", Channel.DEAD_LETTERS: f"{self.name}-D"}
        return self.browse(names[channel], count)

    def markers(self) -> list[Record]:
        return self.browse(f"{self.name}-M")


def message(value: bytes | str | None, id_: str | None = "", part: int = 0, **more: Any) -> Message:
    """Return a message with an id of its own, unless another is given."""
    properties: Mapping[str, Any] = {"part": part, **more.pop("properties", {})}
    body = value.decode() if isinstance(value, bytes) else value
    made = Message(body=body, durable=True, properties=dict(properties), **more)
    if id_ is not None:
        made.id = id_ or f"ID:{uuid4()}"
    return made
