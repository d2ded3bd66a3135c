"""The real servers of a test run: one set for all its processes, started when the first test needs a server."""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from notification_service.connectors.kafka.client import OurNetClient
from servers.artemis import ArtemisServer
from servers.infinispan import InfinispanServer
from servers.kafka import KafkaServer
from servers.mosquitto import MosquittoServer
from servers.postgresql import PostgresqlServer, PostgresqlSettings
from servers.redis import RedisCluster, RedisServer

PARENT = Path(tempfile.gettempdir()) / f"resequencer-servers-{os.getuid()}"
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex


# kafka-python's own clients, which tests use, leave sockets open when they are closed: ours close them.
for client in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
    client.DEFAULT_CONFIG.update(kafka_client=OurNetClient, proxy_url="direct://")


class SharedServers:
    """Handles on the set. A server runs from the first launch by any of the processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kafka = KafkaServer(directory / "kafka")
        self.redis = RedisServer(directory / "redis")
        self.redis_cluster = RedisCluster(directory / "redis-cluster")
        self.infinispan = InfinispanServer(directory / "infinispan")
        self.postgresql = PostgresqlServer(directory / "postgresql", PostgresqlSettings(fsync=False))
        self.artemis = ArtemisServer(directory / "artemis")
        self.mosquitto = MosquittoServer(directory / "mosquitto")

    def launch(self, fixtures: Collection[str]) -> None:
        """Launch all servers whose fixtures are among these at once. Each fixture waits for its own server."""
        servers = {
            "redis_server": self.redis,
            "redis_cluster": self.redis_cluster,
            "kafka": self.kafka,
            "infinispan": self.infinispan,
            "postgresql": self.postgresql,
            "artemis": self.artemis,
            "mosquitto": self.mosquitto,
        }
        for name, server in servers.items():
            if name in fixtures:
                server.launch()
