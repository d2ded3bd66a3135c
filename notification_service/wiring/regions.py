"""Makes the transport of a region: a source, and one or several sinks, of different kinds (docs/regions.md).

They are a file in the run directory, written durably by `resequencer sink set`. A worker reads it before each publication: so
what was set holds from the next publication on, and after each reset and each start.
"""

import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from guardian.ports import TransportRefused
from notification_service.bridge.settings import BridgeSettings
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import ConfigurationRefused, path_of
from notification_service.configuration.sections import Ingress, Notifications, TransportType
from notification_service.configuration.transports import (
    file_settings,
    jms_sink_settings,
    jms_source_settings,
    kafka_sink_settings,
    kafka_source_settings,
    mqtt_sink_settings,
    sinks_of,
    xms_sink_settings,
)
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.files.source import FileSource
from notification_service.connectors.mqtt.settings import MQTT_URL, QOS, TOPIC, MqttSinkSettings
from notification_service.connectors.mqtt.topic_export import TopicExport
from notification_service.connectors.region_port import Sink, Source
from notification_service.connectors.region_transport import RegionTransport, routes_of
from notification_service.status.report import StatusReport
from notification_service.status.sink_attributes import RegionOrder, RegionOrderFile, SetAttributes, SinkAttributesFile
from notification_service.supervision.stop_signal import Wait
from notification_service.supervision.system_clock import SystemClock
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.keys.value_types import Mismatch, ValueType


class RegionNotReset(ResequencerError):
    """There is no region that the order could be given to."""


def give_order(run_directory: Path, worker: StatusReport, by: str, *, is_forced: bool) -> str:
    """Write the order for the worker that reported, and return the order's id. The worker reads it within a second.

    Raises:
        RegionNotReset: The order could not be written.
    """
    order = RegionOrder(worker.process_id, secrets.token_hex(8), by, is_forced)
    try:
        RegionOrderFile(run_directory, worker.slot).give(order)
    except OSError as error:
        problem = f"{run_directory}: the order cannot be written: {error.strerror or error}"
        raise RegionNotReset(f"{problem}; free space on the disk, or run the command as the service's user") from error
    return order.id


_log = logging.getLogger("resequencer.sink")


class Attribute(NamedTuple):
    """An attribute: its name for operators, which is the end of its key, the field of the settings, and what it takes."""

    name: str
    field: str
    takes: ValueType

    @property
    def option(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('.', '-')}"


ATTRIBUTES = (
    Attribute("url", "url", MQTT_URL),
    Attribute("qos", "qos", QOS),
    Attribute("notifications.topic", "notifications", TOPIC),
    Attribute("dead-letters.topic", "dead_letters", TOPIC),
)


def values_of(settings: MqttSinkSettings) -> dict[str, Any]:
    """Return the attributes by their names. The server is shown without a login."""
    fields: dict[str, Any] = msgspec.structs.asdict(settings) | {"url": settings.place}
    return {each.name: fields[each.field] for each in ATTRIBUTES}


def with_attributes(settings: MqttSinkSettings, found: SetAttributes | None) -> MqttSinkSettings:
    """Return the settings with the attributes that were set.

    One that was changed from another value than the configured one does not count any more: the configuration was changed
    after it.

    Raises:
        Mismatch: A value is none of the attribute's.
    """
    if found is None:
        return settings
    configured, changes = values_of(settings), []
    for each in ATTRIBUTES:
        change = found.get(each.name)
        if change is None or change.configured != configured[each.name]:
            continue
        settings = replace(settings, **{each.field: each.takes.read(change.value)})
        changes.append(f"{each.name} = {change.value} (configured: {change.configured}), set by {change.by} at {change.at}")
    return replace(settings, changes=f"sink mqtt: {'; '.join(changes)}") if changes else settings


class CurrentSettings:
    """Returns the settings of the sink that count now, for the worker of a slot; None: for a command.

    Raises of the call:
        TransportRefused: The file cannot be read, or is damaged.
    """

    def __init__(self, configuration: Configuration, slot: int | None) -> None:
        self._configured = mqtt_sink_settings(configuration, slot)
        self._file = SinkAttributesFile(configuration.notification.run_directory)
        self._seen: tuple[int, int, int] | None = None
        self._current = self._configured

    def __call__(self) -> MqttSinkSettings:
        try:
            seen = _signature(self._file.path)
            if seen != self._seen:
                self._take(with_attributes(self._configured, self._file.find() if seen is not None else None))
                self._seen = seen
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}. Let the service's user read it"
            raise TransportRefused(str(self._file.path), problem) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, Mismatch) as error:
            problem = "is damaged. To continue with what is configured: `resequencer sink reset`"
            raise TransportRefused(str(self._file.path), problem) from error
        return self._current

    def _take(self, settings: MqttSinkSettings) -> None:
        if settings != self._current:
            _log.warning("%s", settings.changes or "sink mqtt: its attributes are as configured")
        self._current = settings


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the file is replaced; None without a file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


class _Client(NamedTuple):
    """The client of a kind of broker that only some services need."""

    module: str
    extra: str


_CLIENTS = {"jms": _Client("proton", "jms"), "xms": _Client("proton", "jms"), "mqtt": _Client("paho", "mqtt")}


def make_region_transport(configuration: Configuration, wait: Wait, slot: int) -> RegionTransport:
    """Make the transport of a worker's slot. Nothing is connected yet."""
    source = _make_source(configuration, wait, slot)
    sinks = {each.value: _make_sink(configuration, each, slot) for each in sinks_of(configuration)}
    return RegionTransport(source, routes_of(sinks), configuration.ingress.transport.value)


def find_unusable_clients(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Return a refusal for each key that names a kind, or the bridge's source, whose client is not installed."""
    yield from _unusable_clients_of_bridge(configuration)
    places = [(path_of(Ingress, "transport"), configuration.ingress.transport)]
    places += [(path_of(Notifications, "transport"), each) for each in sinks_of(configuration)]
    yield from _unusable_clients(places)


def refuse_unusable_bridge(configuration: Configuration) -> None:
    """Raise ConfigurationRefused if the client of the bridge's source is not installed."""
    if problems := list(_unusable_clients_of_bridge(configuration)):
        raise ConfigurationRefused(problems)


def _unusable_clients_of_bridge(configuration: Configuration) -> Iterator[ConfigurationError]:
    if configuration.bridge.is_enabled:
        yield from _unusable_clients([(path_of(BridgeSettings, "source"), configuration.bridge.source)])


def _unusable_clients(places: Iterable[tuple[str, str]]) -> Iterator[ConfigurationError]:
    for key, kind in places:
        if kind in _CLIENTS and find_spec((client := _CLIENTS[kind]).module) is None:
            remedy = f"install it by `make setup-jms`, or pip install '.[{client.extra}]'"
            yield ConfigurationError(key, f"is {kind}, whose client is not installed; {remedy}")


def _make_source(configuration: Configuration, wait: Wait, slot: int) -> Source:
    kind = configuration.ingress.transport
    if kind is TransportType.KAFKA:
        from notification_service.connectors.kafka.sink import KafkaSource  # Imported here, which takes a third of a second.

        return KafkaSource(kafka_source_settings(configuration, slot), SystemClock())
    if kind is TransportType.JMS:
        from notification_service.connectors.jms.source import JmsSource  # Imported here: its client may not be installed.

        return JmsSource(jms_source_settings(configuration, slot))
    return FileSource(file_settings(configuration), wait, SystemFiles())


def _make_sink(configuration: Configuration, kind: TransportType, slot: int) -> Sink:
    if kind is TransportType.KAFKA:
        from notification_service.connectors.kafka.sink import KafkaSink  # Imported here, which takes a third of a second.

        return KafkaSink(kafka_sink_settings(configuration), SystemClock())
    if kind is TransportType.JMS:
        from notification_service.connectors.jms.sink import JmsSink  # Imported here: its client may not be installed.

        return JmsSink(jms_sink_settings(configuration), SystemClock())
    if kind is TransportType.XMS:
        from notification_service.connectors.jms.sink import XmsSink  # Imported here: its client may not be installed.

        return XmsSink(xms_sink_settings(configuration), SystemClock())
    if kind is TransportType.MQTT:
        from notification_service.connectors.mqtt.sink import MqttSink  # Imported here: its client may not be installed.

        return MqttSink(CurrentSettings(configuration, slot), SystemClock())
    return FileSink(file_settings(configuration), SystemFiles())


def make_topic_export(configuration: Configuration) -> TopicExport:
    """Make the export of the topics that are in force now. Nothing is connected yet."""
    client_id = f"{configuration.storage.namespace}-verify"
    return TopicExport(
        CurrentSettings(configuration, None)(), client_id, configuration.notification.run_directory / "verify-mqtt"
    )


def subscribe_for_verify(configuration: Configuration) -> None:
    """Let the broker keep what the sink mqtt publishes from now on, if there is such a sink.

    Raises: as `TopicExport.subscribe`.
    """
    if TransportType.MQTT in sinks_of(configuration):
        with closing(make_topic_export(configuration)) as export:
            export.subscribe()
