"""An Artemis broker of one node, with AMQP 1.0 and MQTT."""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from xml.sax.saxutils import escape, quoteattr

from servers.programs import QUICK_JAVA, find_java, get_jars
from servers.server import DATA, LOOPBACK, Server

# Messages are delivered as often as it takes, in order, and queues stay when they are empty. By default, a message that was
# delivered ten times is dropped, and an empty queue vanishes. The disk may be full to the last byte, as that of other servers.
_BROKER_XML = """<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>artemis</name>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-directory>{data}/journal</journal-directory>
    <bindings-directory>{data}/bindings</bindings-directory>
    <large-messages-directory>{data}/large-messages</large-messages-directory>
    <paging-directory>{data}/paging</paging-directory>
    <journal-file-size>10M</journal-file-size>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>4</journal-pool-files>
    <security-enabled>{secured}</security-enabled>
    <jmx-management-enabled>false</jmx-management-enabled>
    <max-disk-usage>100</max-disk-usage>
    <global-max-size>200M</global-max-size>
    <id-cache-size>20000</id-cache-size>
    <persist-id-cache>true</persist-id-cache>
    <acceptors>
      <acceptor name="amqp">tcp://{host}:{amqp}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300;amqpIdleTimeout={idle}</acceptor>
      <acceptor name="mqtt">tcp://{host}:{mqtt}?protocols=MQTT</acceptor>
    </acceptors>
    <security-settings>
{security}
    </security-settings>
    <address-settings>
      <address-setting match="#">
        <max-delivery-attempts>-1</max-delivery-attempts>
        <redelivery-delay>0</redelivery-delay>
        <auto-create-queues>{creates}</auto-create-queues>
        <auto-create-addresses>{creates}</auto-create-addresses>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
        <default-queue-routing-type>ANYCAST</default-queue-routing-type>
        <default-address-routing-type>ANYCAST</default-address-routing-type>
      </address-setting>
    </address-settings>
    <addresses>
{addresses}
    </addresses>
  </core>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what. With `has_users` users may do everything, except with the addresses `closed`.

    With `creates_queues` a queue is made when it is first used. A connection of AMQP that is silent for `idle_ms` is closed.
    """

    has_users: bool
    closed: Sequence[str]
    creates_queues: bool
    idle_ms: int


_RIGHTS = ("createAddress", "createNonDurableQueue", "createDurableQueue", "consume", "browse", "send")


def broker_xml(ports: Mapping[str, int], data: Path, queues: Mapping[str, bool], access: Access) -> str:
    """Return the configuration. `queues` says of each queue that is there from the start whether it is exclusive."""
    return _BROKER_XML.format(
        data=escape(str(data)),
        host=LOOPBACK,
        amqp=ports["artemis"],
        mqtt=ports["mqtt"],
        idle=access.idle_ms,
        secured=str(access.has_users).lower(),
        creates=str(access.creates_queues).lower(),
        security="\n".join([_setting("#", "user"), *(_setting(each, "none") for each in access.closed)]),
        addresses="\n".join(_address(name, is_exclusive=exclusive) for name, exclusive in queues.items()),
    )


def write_users(path: Path, users: Mapping[str, str]) -> None:
    """Write the users' passwords to a file that only the owner can read; remove the file if there are none."""
    path.unlink(missing_ok=True)
    if users:
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={password}\n" for name, password in users.items()))


def _setting(match: str, role: str) -> str:
    rights = "".join(f'<permission type="{each}" roles="{role}"/>' for each in _RIGHTS)
    return f"      <security-setting match={quoteattr(match)}>{rights}</security-setting>"


def _address(name: str, *, is_exclusive: bool) -> str:
    queue = f'<queue name={quoteattr(name)} exclusive="{str(is_exclusive).lower()}"/>'
    return f"      <address name={quoteattr(name)}><anycast>{queue}</anycast></address>"


_GREETING = b"AMQP\x00\x01\x00\x00"
_GREETING_WITH_LOGIN = b"AMQP\x03\x01\x00\x00"
_ANSWER_SECONDS = 2
_BROKER = Path(__file__).parent / "poms" / "artemis" / "Broker.java"


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
