"""What the bridge of a running service reports."""

from notification_service.configuration.configuration import Configuration
from notification_service.status.bridge import BridgeStatus, find_bridge
from notification_service.supervision.running_service import RunningService
from notification_service.supervision.system_clock import SystemClock


def find_bridge_of(configuration: Configuration, service: RunningService) -> BridgeStatus:
    """Return the state of the bridge; empty without one, and while the service does not run."""
    if not configuration.bridge.is_enabled or service.holder is None or not service.holder.isdigit():
        return BridgeStatus()
    return find_bridge(configuration.notification.run_directory, int(service.holder), SystemClock().now())
