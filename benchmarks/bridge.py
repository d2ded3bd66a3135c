"""What it costs to take messages by MQTT and to append them durably: `python -m benchmarks.bridge [--help]`.

A bare consumer takes what its socket has, appends the payloads to a file, syncs it and acknowledges, all in one thread. Beside
it the bridge does the same into partition files. Both empty a session that was filled before, with the same settings. They take
turns; the ratio is that of the best rounds.
"""

import argparse
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from guardian.headers import SCHEMA_VERSION
from notification_service.bridge.file_start import FileStart
from notification_service.bridge.runner import Bridge
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.mqtt.client import connect
from notification_service.connectors.mqtt.messages import outgoing
from notification_service.connectors.mqtt.settings import BrokerSettings
from notification_service.connectors.mqtt.source import MqttSource, MqttSourceSettings
from servers.artemis import ArtemisServer, ArtemisSettings
from servers.lease import leased
from servers.mosquitto import MosquittoServer
from servers.ports import LOOPBACK

UNITS = 1_000
EXPIRY_SECONDS = 3_600
UNDER_WAY = 200


class Work:
    """A session at a broker of this port, and a directory for what is taken from it."""

    def __init__(self, port: int, queue_size: int, directory: Path) -> None:
        self.port, self.queue_size, self.directory = port, queue_size, directory
        self.name = uuid4().hex

    @property
    def settings(self) -> MqttSourceSettings:
        broker = BrokerSettings(f"mqtt://{LOOPBACK}:{self.port}", client_id=self.name)
        return MqttSourceSettings(broker, (f"{self.name}/#",), 1, 1_000 * EXPIRY_SECONDS, self.queue_size)

    def fill(self, bodies: Sequence[bytes]) -> None:
        MqttSource(self.settings, connect).close()
        connection = connect(BrokerSettings(f"mqtt://{LOOPBACK}:{self.port}"))
        for at, body in enumerate(bodies):
            connection.publish(outgoing(f"{self.name}/events", None, ((SCHEMA_VERSION, b"2"),), body), 1)
            if at >= UNDER_WAY:
                connection.next_confirmation()
        for _ in range(min(UNDER_WAY, len(bodies))):
            connection.next_confirmation()
        connection.close()


def bare(work: Work, count: int) -> None:
    came: list[Any] = []
    client = Client(CallbackAPIVersion.VERSION2, work.name, protocol=MQTTv5, manual_ack=True, reconnect_on_failure=False)
    client.on_message = lambda _client, _data, message: came.append(message)
    asked = Properties(PacketTypes.CONNECT)
    asked.SessionExpiryInterval, asked.ReceiveMaximum = EXPIRY_SECONDS, work.queue_size
    client.connect(LOOPBACK, work.port, clean_start=False, properties=asked)
    with (work.directory / "bare").open("ab", buffering=0) as file:
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


def ours(work: Work, count: int) -> None:
    bridge = Bridge(
        lambda: MqttSource(work.settings, connect),
        lambda: FileStart(work.directory / "in", SystemFiles()),
        lambda ms: time.sleep(ms / 1_000),
    )
    while bridge.report().appended < count:
        bridge.turn()
    bridge.close()


def measured(run: Callable[[Work, int], None], port: int, queue_size: int, bodies: Sequence[bytes]) -> float:
    """Return messages per second."""
    with TemporaryDirectory(dir=".") as directory:
        work = Work(port, queue_size, Path(directory))
        work.fill(bodies)
        began_at = time.perf_counter()
        run(work, len(bodies))
        return len(bodies) / (time.perf_counter() - began_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000, help="messages of a round (default: 10000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1_000, help="of a payload (default: 1000)")
    parser.add_argument("--queue-size", type=int, default=50, help="message-queue-size (default: 50)")
    given = parser.parse_args()
    bodies = [body_of(number, given.bytes) for number in range(given.messages)]
    with TemporaryDirectory() as directory, leased(Path(directory) / "servers") as place:
        artemis = ArtemisServer(place / "artemis", ArtemisSettings(java_options=("-Xmx1g",))).start()
        mosquitto = MosquittoServer(place / "mosquitto").start()
        for broker in (artemis, mosquitto):
            best = {"bare consumer": 0.0, "bridge": 0.0}
            for _ in range(given.rounds):
                for what, run in (("bare consumer", bare), ("bridge", ours)):
                    rate = measured(run, int(broker.mqtt_url.rpartition(":")[2]), given.queue_size, bodies)
                    best[what] = max(best[what], rate)
            for what, rate in best.items():
                print(f"{broker.name:10} {what:14} {rate:8.0f} messages/s {rate / best['bare consumer']:6.2f}")
        artemis.stop()
        mosquitto.stop()


def body_of(number: int, size: int) -> bytes:
    """Return the value of an envelope of about that many bytes."""
    head = b'{"flow":"F","sequence":%d,"processingContext":{"unitOfWorkId":"unit-%d"},"customObjects":[{"key":"pad","value":"'
    begun = head % (number, number % UNITS)
    return begun + b"x" * max(0, size - len(begun) - 4) + b'"}]}'


if __name__ == "__main__":
    main()
