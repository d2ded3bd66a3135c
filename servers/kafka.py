"""A Kafka broker in KRaft mode: one node that is its own controller.

Seen in Kafka 4.3.1: at first, the successor of a killed broker uses its predecessor's registration and leads its partitions.
It sends the ends of decided transactions to itself while its listener is not yet open. Then the registration expires, the
partitions have no leader, and these ends are dropped for good, as if the topics had been deleted. So the positions in such a
transaction stay undecided for ever. In a cluster with replicas another broker leads the partitions by then.
"""

import os
import shutil
import socket
import struct
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar
from uuid import uuid4

from kafka import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError

from servers.certificates import Certificates
from servers.process import Process
from servers.programs import QUICK_JAVA, find_java, get_jars, write_log_configuration
from servers.server import LOOPBACK, PROCESS, Server

_METADATA, _VERSION, _CORRELATION, _NO_CLIENT = 3, 4, 1, -1
_NO_TOPICS, _CREATE_NONE = 0, 0
_REQUEST = struct.pack(">hhihi?", _METADATA, _VERSION, _CORRELATION, _NO_CLIENT, _NO_TOPICS, _CREATE_NONE)
_ANSWER = struct.Struct(">iiii")  # Size, correlation, throttle time, number of brokers; the brokers follow.
_SECONDS = 2


def knows_a_broker(port: int) -> bool:
    """Return whether the server answers with a broker; one that its controller has not yet admitted reports none."""
    try:
        with closing(socket.create_connection((LOOPBACK, port), _SECONDS)) as connection:
            connection.settimeout(_SECONDS)
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == _ANSWER.size and _ANSWER.unpack(answer)[3] > 0


SCRAM = "SCRAM-SHA-512"

_ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    # One replica each, because there is one broker.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}

_FOR_TRYING = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # A mistyped topic must fail in a client, as on a cluster with access control.
    "auto.create.topics.enable": "false",
    # Records never expire. The same setting in hours would become a negative time.
    "log.retention.ms": "-1",
    # A paused broker has no other to hand over to, and would drop the ends of transactions (servers/kafka.py).
    "broker.session.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "250",
}

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_AUTHORIZED = {
    "sasl.enabled.mechanisms": SCRAM,
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": _LOGIN,
    "listener.name.sasl_tls.scram-sha-512.sasl.jaas.config": _LOGIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Connections without a name: the broker itself, its controller, and administrators.
    "super.users": "User:ANONYMOUS",
}


def kafka_properties(
    ports: Mapping[str, int], data: Path, certificates: Certificates | None, *, has_users: bool
) -> dict[str, str]:
    """Return the properties. `certificates` adds the listener TLS, `has_users` SASL and authorization; both add SASL_TLS."""
    listeners = {"PLAINTEXT": (ports["kafka"], "PLAINTEXT")}
    listeners |= {"TLS": (ports["tls"], "SSL")} if certificates else {}
    listeners |= {"SASL": (ports["sasl"], "SASL_PLAINTEXT")} if has_users else {}
    listeners |= {"SASL_TLS": (ports["sasl_tls"], "SASL_SSL")} if certificates and has_users else {}
    controller = {"CONTROLLER": (ports["controller"], "PLAINTEXT")}
    return {
        **_ALONE,
        **_FOR_TRYING,
        "log.dirs": str(data),
        "controller.quorum.voters": f"1@{LOOPBACK}:{ports['controller']}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": _addresses(listeners | controller),
        "advertised.listeners": _addresses(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, (_, kind) in (listeners | controller).items()),
        **(_tls(certificates) if certificates else {}),
        **(_AUTHORIZED if has_users else {}),
    }


def _addresses(listeners: Mapping[str, tuple[int, str]]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, (port, _) in listeners.items())


def _tls(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }


_CONTROLLER_ALONE = {"process.roles": "controller", "broker.session.timeout.ms": "200", "broker.heartbeat.interval.ms": "50"}
_OF_BROKERS = ("advertised.listeners", "inter.broker.listener.name")
_LED, _UNREGISTERED = "Becoming the active controller", "Replayed BrokerRegistrationChangeRecord"
_LED_SECONDS, _UNREGISTERED_SECONDS, _END_SECONDS = 300, 60, 30
_LOOK_SECONDS = 0.02


def controller_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the same node as a controller only, on which broker sessions expire almost at once."""
    listener = next(each for each in properties["listeners"].split(",") if each.startswith("CONTROLLER:"))
    kept = {name: value for name, value in properties.items() if name not in _OF_BROKERS}
    return {**kept, **_CONTROLLER_ALONE, "listeners": listener}


def unregister_predecessor(command: Sequence[str], log: Path, note: Path) -> None:
    """Run the controller alone until it has unregistered the broker. Meanwhile `note` holds its process id.

    If an interrupted start has unregistered the broker already, this waits a minute in vain. A failure here shows when the
    broker itself does not start.
    """
    begin = log.stat().st_size
    controller = Process.launch(command, log, os.environ)
    controller.write(note)
    try:
        led = _find(_LED, controller, log, begin, _LED_SECONDS)
        if led is not None:
            _find(_UNREGISTERED, controller, log, led, _UNREGISTERED_SECONDS)
    finally:
        controller.terminate()  # Not killed: what it has logged may not be in its metadata log yet.
        controller.finish(_END_SECONDS)


def _find(words: str, controller: Process, log: Path, begin: int, seconds: float) -> int | None:
    """Return where the words begin in the log behind `begin`, once they are there; None if they do not come in time."""
    until = monotonic() + seconds
    while controller.is_running and monotonic() < until:
        with log.open("rb") as file:
            file.seek(begin)
            if (at := file.read().find(words.encode())) >= 0:
                return begin + at
        sleep(_LOOK_SECONDS)
    return None


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
        """Create the topics, and return once all have leaders. Existing topics do not change."""
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
