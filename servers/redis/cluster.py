"""A Redis cluster of three masters, without replicas."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Self

import redis

from servers.errors import StartFailed
from servers.ports import LOOPBACK
from servers.redis.server import RedisServer, RedisSettings
from servers.server import START_SECONDS

MASTERS = 3
_SLOTS = 16_384
_LOOK_SECONDS = 0.05


class RedisCluster:
    """A cluster. Its `nodes` are servers that can be killed, paused and restarted one by one or together."""

    name = "redis cluster"

    def __init__(self, directory: Path, settings: RedisSettings | None = None) -> None:
        each = replace(settings or RedisSettings(), cluster=True)
        self.nodes: Sequence[RedisServer] = [RedisServer(directory / f"node-{number}", each) for number in range(MASTERS)]

    @property
    def url(self) -> str:
        """The URL of the first node; a cluster client finds the others."""
        return self.nodes[0].url

    def start(self, seconds: float = START_SECONDS) -> Self:
        """Start the nodes that do not run, form the cluster the first time, and wait until all slots are served.

        Raises:
            ProgramMissing, StartFailed: As `Server.start`.
        """
        self.launch()
        self.wait_until_ready(seconds)
        return self

    def launch(self) -> None:
        for node in self.nodes:
            node.launch()

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        for node in self.nodes:
            node.wait_until_ready(seconds)
        if not self.is_ready():
            self._join()
        until = monotonic() + seconds
        while not self.is_ready():
            if monotonic() > until:
                raise StartFailed(self.name, f"did not form a cluster within {seconds:g} s", self.nodes[0].log, ())
            sleep(_LOOK_SECONDS)

    def is_ready(self) -> bool:
        """Return whether every node knows all others and all slots are served."""
        return all(_is_joined(node) for node in self.nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def _join(self) -> None:
        """Form the cluster. Safe to repeat, also by several processes at once."""
        bounds = [_SLOTS * number // MASTERS for number in range(MASTERS + 1)]
        for node, (first, beyond) in zip(self.nodes, pairwise(bounds), strict=True):
            with closing(node.client()) as client:
                _take_slots(client, first, beyond - 1)
                for other in self.nodes:
                    client.execute_command("CLUSTER", "MEET", LOOPBACK, other.ports["redis"], other.ports["bus"])


def _take_slots(client: redis.Redis, first: int, last: int) -> None:
    try:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
    except redis.ResponseError as error:
        if "busy" not in str(error):  # The node has the slots already.
            raise


def _is_joined(node: RedisServer) -> bool:
    """Return whether the node knows all others and all slots are served."""
    if not node.is_ready():
        return False
    with closing(node.client()) as client:
        info = _info(client)
    return info["cluster_known_nodes"] == str(MASTERS) and info["cluster_state"] == "ok"


def _info(client: redis.Redis) -> Mapping[str, str]:
    answer: Mapping[str, str] = client.execute_command("CLUSTER INFO")
    return answer
