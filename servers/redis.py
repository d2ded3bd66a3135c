"""A Redis server."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar, Literal, Self

import redis

from servers.certificates import Certificates
from servers.programs import find_program
from servers.server import LOOPBACK, START_SECONDS, Server, StartFailed

_REMEDY = "Install Redis 7 or newer, so that redis-server is on PATH. On Debian and Ubuntu: apt-get install redis-server"


def find_redis() -> Path:
    """Return `redis-server`, as `find_program` does."""
    return find_program("redis-server", "redis-server", _REMEDY)


_ANSWER_SECONDS, _CLIENT_SECONDS = 2, 60


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The setup of a server.

    `append` sets when the append-only file is synced; with `none` there is no file, and a restart loses all data. `user` and
    `password` create one user with all rights, and disable the default user without password. With `tls` there is only the TLS
    port. `replica_of` is the port of the server to copy. `cluster` makes a cluster node without slots.
    """

    append: Literal["always", "everysec", "none"] = "always"
    user: str = "default"
    password: str = ""
    tls: bool = False
    max_memory: str = "0"
    max_memory_policy: str = "noeviction"
    replica_of: int | None = None
    cluster: bool = False


class RedisServer(Server):
    """A `Server`."""

    name: ClassVar[str] = "redis"
    port_names: ClassVar[Sequence[str]] = ("redis", "bus")

    def __init__(self, directory: Path, settings: RedisSettings | None = None, wanted: Mapping[str, int] | None = None) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or RedisSettings()

    @property
    def url(self) -> str:
        """The URL with user and password; with `tls`, also with the authority to trust."""
        settings = self.settings
        who = f"{settings.user}:{settings.password}@" if settings.password else ""
        address = f"{who}{LOOPBACK}:{self.ports['redis']}/0"
        return f"rediss://{address}?ssl_ca_certs={self.certificates.authority}" if settings.tls else f"redis://{address}"

    @property
    def certificates(self) -> Certificates:
        return Certificates.make(self.directory / "certificates")

    def client(self, seconds: float = _CLIENT_SECONDS) -> redis.Redis:
        """Return a new client that returns bytes, and waits so long for an answer. The caller closes it."""
        return redis.Redis.from_url(self.url, socket_timeout=seconds, socket_connect_timeout=seconds)

    def is_ready(self) -> bool:
        """Return whether the server answers and has loaded its data; for a replica, whether its copy is complete too."""
        client = self.client(_ANSWER_SECONDS)
        try:
            replication = client.info("replication")
        except redis.RedisError:
            return False
        finally:
            client.close()
        return self.settings.replica_of is None or replication["master_link_status"] == "up"

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program, data = find_redis(), self.directory / "data"
        data.mkdir(exist_ok=True)
        path = self.directory / "redis.conf"
        path.write_text("".join(f"{line}\n" for line in self._configuration(data)))
        return [str(program), str(path)], os.environ

    def _configuration(self, data: Path) -> list[str]:
        settings, port = self.settings, self.ports["redis"]
        lines = [f"bind {LOOPBACK}", f'dir "{data}"', 'save ""', "daemonize no", "repl-diskless-sync-delay 0"]
        lines += [f"maxmemory {settings.max_memory}", f"maxmemory-policy {settings.max_memory_policy}"]
        lines += ["appendonly no"] if settings.append == "none" else ["appendonly yes", f"appendfsync {settings.append}"]
        lines += self._tls_lines(port) if settings.tls else [f"port {port}"]
        lines += self._user_lines() if settings.password else []
        lines += [f"replicaof {LOOPBACK} {settings.replica_of}"] if settings.replica_of is not None else []
        lines += ["cluster-enabled yes", f"cluster-port {self.ports['bus']}"] if settings.cluster else []
        return lines

    def _tls_lines(self, port: int) -> list[str]:
        made = self.certificates
        files = [f'tls-cert-file "{made.certificate}"', f'tls-key-file "{made.key}"', f'tls-ca-cert-file "{made.authority}"']
        return ["port 0", f"tls-port {port}", "tls-auth-clients no", "tls-replication yes", *files]

    def _user_lines(self) -> list[str]:
        user, password = self.settings.user, self.settings.password
        off = [] if user == "default" else ["user default off"]
        return [*off, f"user {user} on >{password} ~* &* +@all", f"masteruser {user}", f"masterauth {password}"]


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
