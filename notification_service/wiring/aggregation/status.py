"""What the aggregation workers of a running service report."""

from notification_service.configuration.configuration import Configuration
from notification_service.status.aggregation import AggregationStatus, find_aggregation
from notification_service.supervision.running_service import RunningService
from notification_service.supervision.system_clock import SystemClock


def find_aggregation_of(configuration: Configuration, service: RunningService) -> AggregationStatus:
    """Combine the reports; empty while the service does not run."""
    if service.holder is None or not service.holder.isdigit():
        return AggregationStatus()
    run_directory, count = configuration.notification.run_directory, configuration.aggregation.worker_count
    return find_aggregation(run_directory, int(service.holder), count, SystemClock().now())
