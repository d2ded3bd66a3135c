"""What the delivery workers of a running service report."""

from notification_service.configuration.configuration import Configuration
from notification_service.status.delivery import DeliveryStatus, find_delivery
from notification_service.supervision.locks import RunningService
from notification_service.supervision.system_clock import SystemClock


def find_delivery_of(configuration: Configuration, service: RunningService) -> DeliveryStatus:
    """Combine the reports; empty while the service does not run."""
    if service.holder is None or not service.holder.isdigit():
        return DeliveryStatus()
    run_directory, count = configuration.notification.run_directory, configuration.delivery.worker_count
    return find_delivery(run_directory, int(service.holder), count, SystemClock().now())
