"""What the processes beside the workers of a service report now; empty while the service does not run."""

from notification_service.configuration.configuration import Configuration
from notification_service.status.aggregation import AggregationStatus, BridgeStatus, find_aggregation, find_bridge
from notification_service.status.delivery import DeliveryStatus, find_delivery
from notification_service.supervision.locks import RunningService
from notification_service.supervision.system_clock import SystemClock


def find_delivery_of(configuration: Configuration, service: RunningService) -> DeliveryStatus:
    if service.process_id is None:
        return DeliveryStatus()
    count = configuration.delivery.worker_count
    return find_delivery(configuration.notification.run_directory, service.process_id, count, SystemClock().now())


def find_aggregation_of(configuration: Configuration, service: RunningService) -> AggregationStatus:
    if service.process_id is None:
        return AggregationStatus()
    count = configuration.aggregation.worker_count
    return find_aggregation(configuration.notification.run_directory, service.process_id, count, SystemClock().now())


def find_bridge_of(configuration: Configuration, service: RunningService) -> BridgeStatus:
    if service.process_id is None or not configuration.bridge.is_enabled:
        return BridgeStatus()
    return find_bridge(configuration.notification.run_directory, service.process_id, SystemClock().now())
