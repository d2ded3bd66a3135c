"""A live service under the browser: what it is fed with, and where its console is."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService, envelope_line
from harness.waiting import wait_until
from kafka import KafkaProducer

from notification_service.connectors.line_format import Line, decode_line, encode_line
from servers.kafka import KafkaServer

ASKED, PAID = "uow-asked", "uow-paid"
BOLD = "<b>bold</b>"
"""A unit that is paid, and is not delivered, for the receiver cannot be reached."""

HOSTILE = "<img src=x onerror=alert(1)>&amp;\"'</script>"
LONGEST = "L" * 250
MANY = 3_000
TERMINAL = "\x1b[31mred\x1b]0;title\x07<b>"
"""A unit with this id cannot be: its envelope becomes a dead letter."""

DEBTOR = "Bäckerei <b>Muster</b>"

JOB, RECEIVER = "monday", "tracker"
BANK = "bank"
"""On Kafka a receiver straight from the topic of notifications; it cannot be reached, either."""

_DEAD = 4
_PAYMENT = {
    "uniqueId": "payment",
    "objectType": "PAIN_001",
    "object": {"GrpHdr": {"MsgId": "M-1", "NbOfTxs": "1", "InitgPty": {"Nm": DEBTOR}}},
}
_TITLE = "<script>alert(1)</script>"


class Stage:
    """A service that runs; `feed` appends lines of the file format to its input, whatever its transport.

    `output` are the arguments by which a job finds the notifications, and `more_pages` the paths of pages that only it has.
    """

    def __init__(
        self, daemon: Daemon, feed: Callable[..., None], output: tuple[str, ...], *, has_view: bool, is_kafka: bool
    ) -> None:
        self.daemon = daemon
        self.feed = feed
        self.output = output
        self.has_view, self.is_kafka = has_view, is_kafka
        self.more_pages = (f"/delivery/topics?name={BANK}", f"/dead-letters?receiver={BANK}") if is_kafka else ()
        daemon.start()
        self.address = address_of(daemon.service)

    def fill(self) -> None:
        """Let thousands of units wait, one of them longest; let others be handled, and some records be set aside."""
        self.feed(envelope_line(ASKED, 1, mdsObjects=[_PAYMENT]), envelope_line(ASKED, 3))
        self.daemon.wait_for(lambda report: report.units.waiting == 1, "the first waits")
        self.feed(*(envelope_line(PAID, each) for each in (2, 1, 3)))
        self.feed(envelope_line(BOLD, 1), envelope_line(HOSTILE, 2), envelope_line(LONGEST, 2))
        self.feed(*(envelope_line(f"bulk-{each:05}", 2) for each in range(MANY)))
        self.feed(*map(_line, (b"no JSON", _TITLE.encode(), b'{"processingContext": 3}')), envelope_line(TERMINAL, 1))
        self.daemon.wait_for(lambda report: report.units.waiting == MANY + 3, "all wait")
        self.daemon.wait_for(lambda report: sum(report.dead_letters.values()) == _DEAD, "some are set aside")
        done = self.daemon.service.verb("delivery", "start", JOB, RECEIVER, *self.output)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: BOLD in self._waiting(), "nothing can be delivered")

    def _waiting(self) -> str:
        return self.daemon.service.verb("delivery", "waiting", RECEIVER).stdout


def address_of(service: OperatedService) -> str:
    """Wait until the service's console has an address, and return it."""
    file = service.run_directory / "console.json"
    urls = wait_until(lambda: file.exists() and json.loads(file.read_text()).get("urls"), "the console has an address")
    return str(urls["console"])


def _line(value: bytes) -> bytes:
    return encode_line(Line(value, _TITLE.encode()))[:-1]


def to_topic(kafka: KafkaServer, topic: str) -> Callable[..., None]:
    """A `feed` that writes to the topic."""

    def feed(*lines: bytes) -> None:
        with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
            for each in lines:
                line = decode_line(each)
                assert isinstance(line, Line)
                producer.send(topic, line.value, line.key, headers=[(name, value) for name, value in line.headers])
            producer.flush()

    return feed


def kafka_settings(kafka: KafkaServer, source: str, output: str, dead: str) -> tuple[str, ...]:
    """Overrides for these topics, and a group that is named like the input."""
    clients = f'{{ bootstrap.servers = "{kafka.bootstrap}", group.id = {source} }}'
    return (
        f"{INGRESS}.transport=kafka",
        f"{NOTIFICATION}.transport=kafka",
        f"{INGRESS}.kafka.consumer.topic={source}",
        f"{NOTIFICATION}.kafka.producer.topic={output}",
        f"{NOTIFICATION}.dead-letters.topic={dead}",
        f"{INGRESS}.kafka.consumer.kafka-clients {clients}",
    )


def storage_settings(storage: str, url: str, namespace: str) -> tuple[str, ...]:
    chosen = f"{RESEQUENCER}.storage-type={storage}"
    if storage == "none":
        return (chosen,)
    return (chosen, f"{NOTIFICATION}.storage.namespace={namespace}", f'{NOTIFICATION}.storage.{storage}.url="{url}"')
