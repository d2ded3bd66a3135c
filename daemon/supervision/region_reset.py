"""Orders a worker of this machine's service to reset its region, and finds out what became of it."""

import secrets
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from daemon.supervision.running_service import find_service
from daemon.system_clock import SystemClock
from domain.clock import instant_text
from domain.errors import ResequencerError
from guardian.region import OrderedReset, RegionState
from status.region_order import RegionOrder, RegionOrderFile
from status.report import StatusReport
from status.service_report import NOT_RUNNING, STALE

_LOOK_SECONDS = 0.1


class ResetRefused(ResequencerError):
    """The region is not reset, and the text says why. The worker asks the same questions again when it gets an order."""


def order_reset(run_directory: Path, slot: int, by: str, *, is_forced: bool) -> RegionOrder:
    """Leave the order for the worker in the slot. It obeys before its next cycle, or while it waits for a server.

    Raises:
        ResetRefused: There is no such worker, its region need not be reset, or the run directory cannot be written.
    """
    now = SystemClock().now()
    state, report = _find_worker(run_directory, slot)
    if report is None or report.worker_process_id is None or report.region is None:
        raise ResetRefused(f"worker {slot} does not run here, or has only just been started")
    if state == STALE:
        raise ResetRefused(f"worker {slot} has not reported since {report.reported_at}: end it, which resets its region, too")
    if report.region.state is RegionState.RESETTING:
        raise ResetRefused(f"a reset of the region of worker {slot} is under way")
    if not (is_forced or report.region.state is RegionState.FAILED):
        told = f"the region of worker {slot} is {report.region.state}, and has not failed"
        raise ResetRefused(f"{told}; --force resets it all the same")
    order = RegionOrder(
        report.process_id, report.worker_process_id, secrets.token_hex(8), by, instant_text(now), is_forced=is_forced
    )
    file = RegionOrderFile(run_directory, slot)
    file.write(order)
    found = file.find(report.process_id)
    if found != order and not _is_done(run_directory, slot, order):
        raise ResetRefused(f"{run_directory} cannot be written: make room, or give this user the right to write there")
    return order


def await_reset(
    run_directory: Path, slot: int, order: RegionOrder, seconds: float, pause: Callable[[float], None] = sleep
) -> StatusReport | None:
    """Return the report that tells what became of the order; None if there is none within the time.

    If the worker ended meanwhile, its region was reset by that: the report is then that of the worker after it.
    """
    until = monotonic() + seconds
    while monotonic() < until:
        _, report = _find_worker(run_directory, slot)
        if report is not None and report.region is not None:
            is_another = report.worker_process_id not in (None, order.worker_process_id)
            is_told = report.region.ordered is not None and report.region.ordered.id == order.id
            if is_another or (is_told and report.region.state is not RegionState.RESETTING):
                return report
        pause(_LOOK_SECONDS)
    return None


def outcome_of(report: StatusReport, order: RegionOrder) -> OrderedReset | None:
    """Return what the worker says of the order; None if another worker has taken its place."""
    ordered = None if report.region is None else report.region.ordered
    return ordered if ordered is not None and ordered.id == order.id else None


def _is_done(run_directory: Path, slot: int, order: RegionOrder) -> bool:
    """Whether the worker has taken the order already. It removes the file first, and reports then."""
    return await_reset(run_directory, slot, order, 3) is not None


def _find_worker(run_directory: Path, slot: int) -> tuple[str, StatusReport | None]:
    state, service, _ = find_service(run_directory, SystemClock().now())
    if service is None or state == NOT_RUNNING:
        return NOT_RUNNING, None
    return next(((state, each) for state, each in service.workers if each.slot == slot), (NOT_RUNNING, None))
