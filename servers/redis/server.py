"""A Redis server."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import redis

from servers.certificates import Certificates
from servers.ports import LOOPBACK
from servers.redis.program import find_redis
from servers.server import Server

_ANSWER_SECONDS = 2


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How a server is set up.

    `append` is when its log reaches the disk; with `none` there is no log, and a server that ends forgets everything.
    `user` and `password` make one user who may do everything, and turn the one without a password off. With `tls` there is
    no other port. `replica_of` is the port of the server that it copies. `cluster` makes a node of one, without slots.
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
    """See `Server`."""

    name: ClassVar[str] = "redis"
    port_names: ClassVar[Sequence[str]] = ("redis", "bus")

    def __init__(self, directory: Path, settings: RedisSettings | None = None, wanted: Mapping[str, int] | None = None) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or RedisSettings()

    @property
    def url(self) -> str:
        """With user and password; with `tls`, also with what the client must trust."""
        settings = self.settings
        who = f"{settings.user}:{settings.password}@" if settings.password else ""
        address = f"{who}{LOOPBACK}:{self.ports['redis']}/0"
        return f"rediss://{address}?ssl_ca_certs={self.certificates.authority}" if settings.tls else f"redis://{address}"

    @property
    def certificates(self) -> Certificates:
        return Certificates.make(self.directory / "certificates")

    def client(self) -> redis.Redis:
        """A new client that answers with bytes; whoever takes it closes it."""
        return redis.Redis.from_url(self.url, socket_timeout=_ANSWER_SECONDS, socket_connect_timeout=_ANSWER_SECONDS)

    def is_ready(self) -> bool:
        """Whether it answers and has read its data; a replica: whether it has its copy too."""
        client = self.client()
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
