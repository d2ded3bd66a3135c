"""Gives orders to the regions of the workers of this machine, for the command line and the console."""

import secrets
from pathlib import Path

from notification_service.status.region_order import RegionOrder, RegionOrderFile
from notification_service.status.report import StatusReport
from resequencer.errors import ResequencerError


class RegionNotReset(ResequencerError):
    """There is no region that the order could be given to."""


def give_order(run_directory: Path, worker: StatusReport, by: str, *, is_forced: bool) -> str:
    """Write the order for the worker that reported, and return the order's id. The worker reads it within a second.

    Raises:
        RegionNotReset: The order could not be written.
    """
    order = RegionOrder(worker.process_id, secrets.token_hex(8), by, is_forced)
    try:
        RegionOrderFile(run_directory, worker.slot).give(order)
    except OSError as error:
        problem = f"{run_directory}: the order cannot be written: {error.strerror or error}"
        raise RegionNotReset(f"{problem}; make room, or run the command as the service's user") from error
    return order.id
