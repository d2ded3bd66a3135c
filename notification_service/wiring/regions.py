"""Makes the transport of a region: a source, and one or several sinks, of different kinds (docs/regions.md)."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import NamedTuple

from notification_service.bridge.settings import BridgeSettings, SourceKind
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.file_settings import file_settings
from notification_service.configuration.jms_settings import jms_sink_settings, jms_source_settings, xms_sink_settings
from notification_service.configuration.kafka_settings import kafka_sink_settings, kafka_source_settings
from notification_service.configuration.kinds import sinks_of
from notification_service.configuration.refusal import ConfigurationRefused
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Ingress, Notifications, TransportType
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.files.source import FileSource
from notification_service.connectors.region.port import Sink, Source
from notification_service.connectors.region.transport import RegionTransport, routes_of
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.sink_attributes import CurrentSettings
from resequencer.errors import ConfigurationError


class _Client(NamedTuple):
    module: str
    remedy: str


_PROTON = _Client("proton", "`make setup-jms`, or pip install '.[jms]'")
_CLIENTS = {
    TransportType.JMS: _PROTON,
    TransportType.XMS: _PROTON,
    TransportType.MQTT: _Client("paho", "`make setup-jms`, or pip install '.[mqtt]'"),
}


def make_region_transport(configuration: Configuration, wait: Callable[[int], None], slot: int) -> RegionTransport:
    """Make the transport of a worker's slot. Nothing is connected yet."""
    source = _make_source(configuration, wait, slot)
    sinks = {each.value: _make_sink(configuration, each, slot) for each in sinks_of(configuration)}
    return RegionTransport(source, routes_of(sinks), configuration.ingress.transport.value)


def find_unusable_clients(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Return a refusal for each key that names a kind, or the bridge's source, whose client is not installed."""
    yield from _unusable_clients_of_bridge(configuration)
    places = [(path_of(Ingress, "transport"), configuration.ingress.transport)]
    places += [(path_of(Notifications, "transport"), each) for each in sinks_of(configuration)]
    for key, kind in places:
        if kind in _CLIENTS and find_spec((client := _CLIENTS[kind]).module) is None:
            yield ConfigurationError(key, f"is {kind}, whose client is not installed; install it by {client.remedy}")


def refuse_unusable_bridge(configuration: Configuration) -> None:
    """Raise ConfigurationRefused if the client of the bridge's source is not installed."""
    if problems := list(_unusable_clients_of_bridge(configuration)):
        raise ConfigurationRefused(problems)


def _unusable_clients_of_bridge(configuration: Configuration) -> Iterator[ConfigurationError]:
    source = configuration.bridge.source
    package, extra = ("paho", "mqtt") if source is SourceKind.MQTT else ("proton", "jms")
    if configuration.bridge.is_enabled and find_spec(package) is None:
        remedy = f"is {source}, whose client is not installed; install it by `make setup-jms`, or pip install '.[{extra}]'"
        yield ConfigurationError(path_of(BridgeSettings, "source"), remedy)


def _make_source(configuration: Configuration, wait: Callable[[int], None], slot: int) -> Source:
    kind = configuration.ingress.transport
    if kind is TransportType.KAFKA:
        from notification_service.connectors.kafka.source import KafkaSource  # Imported here, which takes a third of a second.

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
        from notification_service.connectors.jms.xms_sink import XmsSink  # Imported here: its client may not be installed.

        return XmsSink(xms_sink_settings(configuration), SystemClock())
    if kind is TransportType.MQTT:
        from notification_service.connectors.mqtt.sink import MqttSink  # Imported here: its client may not be installed.

        return MqttSink(CurrentSettings(configuration, slot), SystemClock())
    return FileSink(file_settings(configuration), SystemFiles())
