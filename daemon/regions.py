"""Makes the transport of a region: a source, and one or several sinks, of different kinds (docs/regions.md)."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

from connectors.files.operations import SystemFiles
from connectors.files.sink import FileSink
from connectors.files.source import FileSource
from connectors.region.port import Sink, Source
from connectors.region.transport import RegionTransport, routes_of
from daemon.configuration.configuration import Configuration
from daemon.configuration.file_settings import file_settings
from daemon.configuration.jms_settings import jms_sink_settings, jms_source_settings
from daemon.configuration.kafka_settings import kafka_sink_settings, kafka_source_settings
from daemon.configuration.kinds import sinks_of
from daemon.configuration.schema import path_of
from daemon.configuration.sections import Ingress, Notifications, TransportType
from daemon.system_clock import SystemClock
from domain.errors import ConfigurationError


def make_region_transport(configuration: Configuration, wait: Callable[[int], None], slot: int) -> RegionTransport:
    """Make the transport of a worker's slot. Nothing is connected yet."""
    source = _make_source(configuration, wait, slot)
    sinks = {each.value: _make_sink(configuration, each) for each in sinks_of(configuration)}
    return RegionTransport(source, routes_of(sinks), configuration.ingress.transport.value)


def find_unusable_clients(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Return a refusal for each key that names jms, if its client is not installed."""
    if find_spec("proton") is not None:
        return
    remedy = "is jms, whose client is not installed; install it by `make setup-jms`, or pip install '.[jms]'"
    if configuration.ingress.transport is TransportType.JMS:
        yield ConfigurationError(path_of(Ingress, "transport"), remedy)
    if TransportType.JMS in sinks_of(configuration):
        yield ConfigurationError(path_of(Notifications, "transport"), remedy)


def _make_source(configuration: Configuration, wait: Callable[[int], None], slot: int) -> Source:
    kind = configuration.ingress.transport
    if kind is TransportType.KAFKA:
        from connectors.kafka.source import KafkaSource  # Imported here, which takes a third of a second.

        return KafkaSource(kafka_source_settings(configuration, slot), SystemClock())
    if kind is TransportType.JMS:
        from connectors.jms.source import JmsSource  # Imported here: its client may not be installed.

        return JmsSource(jms_source_settings(configuration, slot))
    return FileSource(file_settings(configuration), wait, SystemFiles())


def _make_sink(configuration: Configuration, kind: TransportType) -> Sink:
    if kind is TransportType.KAFKA:
        from connectors.kafka.sink import KafkaSink  # Imported here, which takes a third of a second.

        return KafkaSink(kafka_sink_settings(configuration), SystemClock())
    if kind is TransportType.JMS:
        from connectors.jms.sink import JmsSink  # Imported here: its client may not be installed.

        return JmsSink(jms_sink_settings(configuration), SystemClock())
    return FileSink(file_settings(configuration), SystemFiles())
