"""An Artemis broker of one node, with AMQP 1.0 and MQTT."""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from servers.artemis.files import Access, broker_xml, write_users
from servers.java.jars import get_jars
from servers.java.program import QUICK_JAVA, find_java
from servers.ports import LOOPBACK
from servers.server import DATA, Server

_GREETING = b"AMQP\x00\x01\x00\x00"
_GREETING_WITH_LOGIN = b"AMQP\x03\x01\x00\x00"
_ANSWER_SECONDS = 2
_BROKER = Path(__file__).parent / "Broker.java"


@dataclass(frozen=True, slots=True)
class ArtemisSettings:
    """The setup of a broker. With `users` (passwords by name) only they have access, but not to the addresses `closed`.

    `queues` are there from the start, and say whether they are exclusive. Without `creates_queues` there are no others.
    A connection of AMQP that is silent for `idle_ms` is closed.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    closed: Sequence[str] = ()
    queues: Mapping[str, bool] = field(default_factory=dict)
    creates_queues: bool = True
    idle_ms: int = 10_000
    java_options: Sequence[str] = QUICK_JAVA


class ArtemisServer(Server):
    """A `Server`. Queues and messages survive a restart and a kill."""

    name: ClassVar[str] = "artemis"
    port_names: ClassVar[Sequence[str]] = ("artemis", "mqtt")

    def __init__(self, directory: Path, settings: ArtemisSettings | None = None, wanted: Mapping[str, int] | None = None) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or ArtemisSettings()

    @property
    def url(self) -> str:
        """The address for AMQP 1.0."""
        return f"amqp://{LOOPBACK}:{self.ports['artemis']}"

    @property
    def mqtt_url(self) -> str:
        return f"mqtt://{LOOPBACK}:{self.ports['mqtt']}"

    def is_ready(self) -> bool:
        """Return whether the broker answers the greeting of AMQP."""
        greeting = _GREETING_WITH_LOGIN if self.settings.users else _GREETING
        try:
            with closing(socket.create_connection((LOOPBACK, self.ports["artemis"]), _ANSWER_SECONDS)) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                connection.sendall(greeting)
                return connection.recv(len(greeting), socket.MSG_WAITALL) == greeting
        except OSError:
            return False

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        settings, data = self.settings, self.directory / DATA
        data.mkdir(exist_ok=True)
        configuration, users = self.directory / "broker.xml", self.directory / "users.properties"
        access = Access(bool(settings.users), settings.closed, settings.creates_queues, settings.idle_ms)
        configuration.write_text(broker_xml(self.ports, data, settings.queues, access))
        write_users(users, settings.users)
        java = [str(find_java()), "-cp", f"{get_jars('artemis')}/*", *settings.java_options]
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"  # At the level below, each duplicate is a line.
        return [*java, log, str(_BROKER), str(configuration), str(users)], os.environ
