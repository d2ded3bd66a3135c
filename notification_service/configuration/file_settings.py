"""Makes the settings of the file transport from the configuration."""

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.connectors.files.settings import FileSettings


def file_settings(configuration: Configuration) -> FileSettings:
    """Return directories, limits and rotation; nothing is created. Facts and outcomes of orders go to the first sink alone."""
    ingress, notification, aggregation = configuration.ingress, configuration.notification, configuration.aggregation
    is_first = notification.transport is TransportType.FILE
    return FileSettings(
        ingress.topic,
        ingress.file_directory,
        notification.output_directory,
        ingress.max_record_bytes,
        rotate_bytes=notification.rotate_bytes,
        notifications_kept=notification.notifications_kept,
        has_orders=configuration.orders.is_enabled and is_first,
        facts_directory=aggregation.facts_directory if aggregation.is_enabled and is_first else None,
    )
