"""What the processes beside the workers of a service report and serve now; empty while the service does not run."""

from pathlib import Path

from notification_service.configuration.configuration import Configuration
from notification_service.status.aggregation import AggregationStatus, BridgeStatus, find_aggregation, find_bridge
from notification_service.status.delivery import DeliveryStatus, find_delivery
from notification_service.status.service_report import Served, ServedStatus, console_file, probes_file
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


def find_served(run_directory: Path, service: RunningService) -> ServedStatus:
    """Return the addresses of the console, the metrics and the probes, and why one of them is missing."""
    if service.process_id is None:
        return ServedStatus()
    console, probes = (file(run_directory).find(service.process_id) for file in (console_file, probes_file))
    notes = (*_note("the console does not run", console), *_note("the health probes are not served", probes))
    return ServedStatus({**(console.urls if console else {}), **(probes.urls if probes else {})}, notes)


def _note(what: str, served: Served | None) -> tuple[str, ...]:
    """With addresses, only a part is missing, and the problem says which."""
    if served is None or served.problem is None:
        return ()
    return (served.problem,) if served.urls else (f"{what}: {served.problem}",)
