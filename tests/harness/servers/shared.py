"""The real servers of a test run: one set for all its processes, started when the first test needs a server."""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

from servers.infinispan.server import InfinispanServer
from servers.kafka.server import KafkaServer
from servers.redis.cluster import RedisCluster
from servers.redis.server import RedisServer

PARENT = Path(tempfile.gettempdir()) / f"resequencer-servers-{os.getuid()}"
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex


class SharedServers:
    """Handles on the set. None runs before it is launched by one of the processes, whichever is first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kafka = KafkaServer(directory / "kafka")
        self.redis = RedisServer(directory / "redis")
        self.redis_cluster = RedisCluster(directory / "redis-cluster")
        self.infinispan = InfinispanServer(directory / "infinispan")

    def launch(self, fixtures: Collection[str]) -> None:
        """Those whose fixtures are among these, all at once; each is waited for by its own fixture."""
        servers = {
            "redis_server": self.redis,
            "redis_cluster": self.redis_cluster,
            "kafka": self.kafka,
            "infinispan": self.infinispan,
        }
        for name, server in servers.items():
            if name in fixtures:
                server.launch()
