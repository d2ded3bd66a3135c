"""One server of each kind in a directory, for users: started by `make servers`, and configured by `conf/local.conf`."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from notification_service.jobs.maven import locked
from servers.artemis import ArtemisServer, ArtemisSettings
from servers.infinispan import InfinispanServer, InfinispanSettings
from servers.kafka import KafkaServer, KafkaSettings
from servers.postgresql import PostgresqlServer, find_postgresql
from servers.process import Process
from servers.programs import find_java, get_jars
from servers.receiver import ReceiverServer
from servers.redis import RedisServer, find_redis
from servers.server import LOOPBACK, PORTS_FILE, PROCESS, Server, ServersError, forget_taken_ports, is_free, stop_all

PORTS = {
    "kafka": 9092,
    "controller": 9093,
    "redis": 6379,
    "infinispan": 11222,
    "postgresql": 5432,
    "artemis": 5672,
    "mqtt": 1883,
    "receiver": 8090,
}
"""The usual ports; others are chosen if these are taken."""

ADDRESSES = "written-by-make-servers.conf"
"""The file in the directory from which the configuration reads the addresses."""

JMS_ADDRESSES = "written-by-make-servers-for-jms.conf"
"""The same for a service whose notifications go to a queue: without a receiver, which could not read them there."""

MQTT_ADDRESSES = "written-by-make-servers-for-mqtt.conf"
"""The same for a service whose envelopes come by MQTT. It has topics of its own, beside those of `conf/local.conf`."""

_TOPICS = (
    "IPF_PROCESSING_DATA",
    "PAYMENT_STATUS_NOTIFICATION",
    "IPF_PROCESSING_DATA_DEAD_LETTERS",
    "IPF_PROCESSING_DATA_ORDERS",
    "IPF_PROCESSING_DATA_ORDER_OUTCOMES",
    "PAYMENT_STATUS_NOTIFICATION_DELIVERY_EVENTS",
    "PAYMENT_STATUS_FACTS",
    "PAYMENT_GROUP_STATUS",
    "PAYMENT_GROUP_DEAD_LETTERS",
)
_TOPICS_OF_MQTT = (
    "MQTT_PROCESSING_DATA",
    "MQTT_PAYMENT_STATUS_NOTIFICATION",
    "MQTT_PROCESSING_DATA_DEAD_LETTERS",
)
_PARTITIONS = 4
_NAMES = ("kafka", "redis", "infinispan", "postgresql", "artemis", "receiver")
_JAVA = ("-Xmx1g",)

_ADDRESSES = """\
# Rewritten by each `make servers`; conf/local.conf includes it.
ipf.processing-data.ingress.kafka.consumer.kafka-clients.bootstrap.servers = "{kafka}"
payment-status-notification {{
  kafka.producer.kafka-clients.bootstrap.servers = "{kafka}"
  storage.redis.url = "{redis}"
  storage.infinispan.url = "{infinispan}"
  delivery.ledger.url = "{postgresql}"
  delivery.receivers.tracker.url = "{receiver}"
}}
"""

_ADDRESSES_OF_JMS = """\
# Rewritten by each `make servers`; conf/local-jms.conf includes it.
ipf.processing-data.ingress {{
  jms.url = "{artemis}"
  kafka.consumer.kafka-clients.bootstrap.servers = "{kafka}"
}}
payment-status-notification {{
  jms.url = "{artemis}"
  kafka.producer.kafka-clients.bootstrap.servers = "{kafka}"
  storage.redis.url = "{redis}"
  storage.infinispan.url = "{infinispan}"
}}
"""


_ADDRESSES_OF_MQTT = """\
# Rewritten by each `make servers`; conf/local-mqtt.conf includes it.
ipf.bridge.mqtt.url = "{mqtt}"
payment-status-notification.mqtt.url = "{mqtt}"
ipf.processing-data.ingress.kafka.consumer.kafka-clients.bootstrap.servers = "{kafka}"
payment-status-notification {{
  kafka.producer.kafka-clients.bootstrap.servers = "{kafka}"
  storage.redis.url = "{redis}"
  storage.infinispan.url = "{infinispan}"
}}
"""


def start_local(directory: Path, say: Callable[[str], None]) -> bool:
    """Start the servers that do not run, create missing topics, and write the addresses. `say` gets a line per server.

    Return True: all of them run.

    Raises:
        ServersError: A program is missing, and no server was started; or some server did not start, while the others run.
    """
    find_java()
    find_redis()
    find_postgresql()
    get_jars("kafka")
    get_jars("infinispan")
    get_jars("artemis")
    with locked(directory / "lock"):
        moved = [name for name in _NAMES if forget_taken_ports(directory / name)]
        kafka = KafkaServer(directory / "kafka", KafkaSettings(java_options=_JAVA), PORTS)
        redis = RedisServer(directory / "redis", wanted=PORTS)
        infinispan = InfinispanServer(directory / "infinispan", InfinispanSettings(java_options=_JAVA), PORTS)
        postgresql = PostgresqlServer(directory / "postgresql", wanted=PORTS)
        artemis = ArtemisServer(directory / "artemis", ArtemisSettings(java_options=_JAVA), PORTS)
        receiver = ReceiverServer(directory / "receiver", wanted=PORTS)
        _start_together([kafka, redis, infinispan, postgresql, artemis, receiver], say)
        kafka.create_topics(*_TOPICS, *_TOPICS_OF_MQTT, partitions=_PARTITIONS)
        urls = {each.name: each.url for each in (redis, infinispan, postgresql, artemis, receiver)}
        texts = ((ADDRESSES, _ADDRESSES), (JMS_ADDRESSES, _ADDRESSES_OF_JMS), (MQTT_ADDRESSES, _ADDRESSES_OF_MQTT))
        for name, addresses in texts:
            (directory / name).write_text(addresses.format(kafka=kafka.bootstrap, mqtt=artemis.mqtt_url, **urls))
        if moved:
            say(f"new address, because another process has the old port: {', '.join(moved)}. Restart the programs that use it")
    return True


def stop_local(directory: Path, say: Callable[[str], None]) -> bool:
    """Stop the running servers; data, logs and the addresses stay. Return True: none runs."""
    stopped = stop_all(directory)
    say(f"stopped: {', '.join(stopped)}" if stopped else f"no server runs in {directory}")
    return True


def tell_local(directory: Path, say: Callable[[str], None]) -> bool:
    """Say of each server whether it runs, and where. Return whether all of them run and listen."""
    listening = [_listens(directory / name, say) for name in _NAMES]
    return all(listening)


def _listens(directory: Path, say: Callable[[str], None]) -> bool:
    name, process = directory.name, Process.read(directory / PROCESS)
    if process is None:
        say(f"{name:10} does not run")
        return False
    port = json.loads((directory / PORTS_FILE).read_bytes())[name]
    listens = not is_free(port)
    say(f"{name:10} {'runs' if listens else 'is starting'} on {LOOPBACK}:{port}; data and log: {os.path.relpath(directory)}")
    return listens


def _start_together(servers: list[Server], say: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(len(servers)) as threads:
        failures = [failure for failure in threads.map(lambda server: _find_failure(server, say), servers) if failure]
    if failures:
        raise ServersError("\n".join(failures))


def _find_failure(server: Server, say: Callable[[str], None]) -> str | None:
    """Start the server; return the reason if it could not be started, else None."""
    was_running = server.is_running
    try:
        server.start()
    except ServersError as error:
        return str(error)
    port, state = server.ports[server.name], "was running already" if was_running else "is ready"
    place = os.path.relpath(server.directory)
    say(f"{server.name:10} {state} on {LOOPBACK}:{port}{_why_not_usual(server)}; data and log: {place}")
    return None


def _why_not_usual(server: Server) -> str:
    usual = PORTS[server.name]
    return "" if server.ports[server.name] == usual else f" ({usual} was taken)"
