"""What the bridge of a running service reports."""

from daemon.configuration.configuration import Configuration
from daemon.supervision.running_service import RunningService
from daemon.system_clock import SystemClock
from status.bridge import BridgeStatus, find_bridge


def find_bridge_of(configuration: Configuration, service: RunningService) -> BridgeStatus:
    """Return the state of the bridge; empty without one, and while the service does not run."""
    if not configuration.bridge.is_enabled or service.holder is None or not service.holder.isdigit():
        return BridgeStatus()
    return find_bridge(configuration.notification.run_directory, int(service.holder), SystemClock().now())
