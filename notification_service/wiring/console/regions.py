"""What the console may ask of the regions of this machine's workers."""

from notification_service.configuration.configuration import Configuration
from notification_service.supervision.running_service import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.region_orders import give_order


class LocalRegions:
    """Gives orders to the workers of the service that runs."""

    def __init__(self, configuration: Configuration) -> None:
        self._run_directory = configuration.notification.run_directory

    def reset(self, slot: int, by: str, *, is_forced: bool) -> bool:
        found = find_service(self._run_directory, SystemClock().now())
        workers = found.report.workers if found.report is not None and found.holder is not None else ()
        worker = next((each for _, each in workers if each.slot == slot), None)
        if worker is None:
            return False
        give_order(self._run_directory, worker, by, is_forced=is_forced)
        return True
