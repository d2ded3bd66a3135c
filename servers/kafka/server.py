"""A Kafka broker in KRaft mode: one node that is its own controller."""

import os
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from kafka import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError

from servers.certificates import Certificates
from servers.java.jars import get_jars
from servers.java.log import write_log_configuration
from servers.java.program import QUICK_JAVA, find_java
from servers.kafka.probe import knows_a_broker
from servers.kafka.properties import SCRAM, kafka_properties
from servers.kafka.stale_registration import controller_properties, unregister_predecessor
from servers.ports import LOOPBACK
from servers.server import PROCESS, Server

_FORMAT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The setup of a broker. The plaintext listener is always there.

    `tls` adds a listener with own certificates. `users` (passwords by name) adds one for SASL/SCRAM-SHA-512, and with `tls` a
    third for both. It also turns authorization on: users may do only what ACLs allow, while a connection through a listener
    without login may do everything. `properties` override those of the broker.
    """

    tls: bool = False
    users: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: Sequence[str] = QUICK_JAVA


class KafkaServer(Server):
    """A `Server`. `create_topics` creates topics; the broker creates none automatically."""

    name: ClassVar[str] = "kafka"
    port_names: ClassVar[Sequence[str]] = ("kafka", "controller", "tls", "sasl", "sasl_tls")

    def __init__(self, directory: Path, settings: KafkaSettings | None = None, wanted: Mapping[str, int] | None = None) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or KafkaSettings()

    @property
    def bootstrap(self) -> str:
        """The address of the plaintext listener."""
        return f"{LOOPBACK}:{self.ports['kafka']}"

    @property
    def tls_bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.ports['tls']}"

    @property
    def sasl_bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.ports['sasl']}"

    @property
    def sasl_tls_bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.ports['sasl_tls']}"

    @property
    def certificates(self) -> Certificates:
        return Certificates.make(self.directory / "certificates")

    def admin(self) -> KafkaAdminClient:
        """Return a new admin client on the plaintext listener. The caller closes it."""
        return KafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=60_000)

    def create_topics(self, *names: str, partitions: int = 4, config: Mapping[str, str] | None = None) -> None:
        """Create the topics, and return once all have leaders. Existing topics are left unchanged."""
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        with closing(self.admin()) as admin:
            for name in names:
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics({name: topic}, wait_for_metadata=True)

    def is_ready(self) -> bool:
        """Return whether the broker answers metadata requests."""
        return knows_a_broker(self.ports["kafka"])

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        settings, configuration, data = self.settings, self.directory / "conf", self.directory / "data"
        configuration.mkdir(exist_ok=True)
        certificates = self.certificates if settings.tls else None
        properties = kafka_properties(self.ports, data, certificates, has_users=bool(settings.users))
        properties |= settings.properties
        path = _written(properties, configuration / "server.properties")
        log = write_log_configuration(configuration)
        java = [str(find_java()), "-cp", f"{get_jars('kafka')}/*", f"-Dlog4j2.configurationFile={log}", *settings.java_options]
        self._format(java, path, data)
        if (data / "__cluster_metadata-0").exists() and not (data / ".kafka_cleanshutdown").exists():
            alone = _written(controller_properties(properties), configuration / "controller.properties")
            unregister_predecessor([*java, "kafka.Kafka", str(alone)], self.log, self.directory / PROCESS)
        return [*java, "kafka.Kafka", str(path)], os.environ

    def _format(self, java: Sequence[str], properties: Path, data: Path) -> None:
        """Format the data directory, once. Data of an interrupted format was never used and is deleted."""
        formatted = self.directory / "formatted"
        if formatted.exists():
            return
        shutil.rmtree(data, ignore_errors=True)
        users = [f"--add-scram={SCRAM}=[name={name},password={password}]" for name, password in self.settings.users.items()]
        cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=").replace("-", "_")
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), *users]
        with self.log.open("ab") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=_FORMAT_SECONDS, check=False)  # noqa: S603 - all ours.
        if done.returncode:
            raise self._failure("could not format its data")
        formatted.touch()


def _written(properties: Mapping[str, str], path: Path) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
