"""The kinds of source and sinks of a configuration, and which commands work with them."""

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Ingress, Notifications, TransportType
from resequencer.errors import ConfigurationError


def sinks_of(configuration: Configuration) -> tuple[TransportType, ...]:
    """Return the kinds of all sinks; the first takes everything, the others the notifications."""
    notification = configuration.notification
    return (notification.transport, *map(TransportType, notification.further_transports))


def is_region(configuration: Configuration) -> bool:
    """Return whether source and sinks are not one transport: docs/regions.md."""
    source = configuration.ingress.transport
    is_fixed = bool(configuration.ingress.kafka_partitions)
    return sinks_of(configuration) != (source,) or source is TransportType.JMS or is_fixed


def max_of_interval(configuration: Configuration) -> int:
    """Return the most records of a cycle."""
    count = configuration.region.trigger_count if is_region(configuration) else None
    return configuration.ingress.batch_size if count is None else count


def only_with_files(configuration: Configuration, command: str) -> ConfigurationError | None:
    """Return the text of a refusal: this command works on files only."""
    source, sinks = configuration.ingress.transport, sinks_of(configuration)
    if source is not TransportType.FILE:
        why = "brokers remove old records of a topic by its retention"
        why = "a broker removes a message once it is acknowledged" if source is TransportType.JMS else why
        return ConfigurationError(path_of(Ingress, "transport"), f"{source}: `{command}` works on files; {why}")
    if is_region(configuration):
        text = f"{', '.join(sinks)}: `{command}` needs files as the only sink: only they tell what has left"
        return ConfigurationError(path_of(Notifications, "transport"), text)
    return None


def only_with_one_kind(configuration: Configuration, command: str) -> ConfigurationError | None:
    """Return the text of a refusal: this command needs input and first sink of one kind, both topics or both files."""
    source, sink = configuration.ingress.transport, configuration.notification.transport
    if source is sink and source is not TransportType.JMS:
        return None
    text = f"{sink}, with the input {source}: `{command}` needs both to be kafka, or both to be file"
    return ConfigurationError(path_of(Notifications, "transport"), text)
