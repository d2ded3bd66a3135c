"""`resequencer region show | reset`: the state of each worker's region, and its reset to the last checkpoint."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from daemon.commands.dead_letters.stores import sign
from daemon.commands.subcommands import Subcommand, add_subcommands, load_for
from daemon.exit_code import ExitCode
from daemon.supervision.region_reset import ResetRefused, await_reset, order_reset, outcome_of
from daemon.supervision.running_service import find_service
from daemon.system_clock import SystemClock
from domain.printable import counted, printable
from guardian.region import OrderedReset, RegionState, RegionStatus
from status.report import ParticipantStatus, StatusReport
from status.service_report import NOT_RUNNING

_WAIT_SECONDS = 30.0
_COLUMNS = ("Worker", "State", "Interval", "Drain", "Checkpoint", "Publish", "Resets", "Participants")


class WorkerRegion(msgspec.Struct, frozen=True):
    """The region of the worker in a slot. `region` is None if the worker has not reported one yet."""

    worker: int
    region: RegionStatus | None
    participants: tuple[ParticipantStatus, ...]


def region(arguments: Namespace) -> ExitCode:
    """Run `resequencer region show | reset`.

    Exit code 1 for `show` if the service does not run or a region has failed, for `reset` if one is refused or fails again, and 4
    if a worker does not answer in time.
    """
    run_directory = load_for(arguments).notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    if service is None or state == NOT_RUNNING:
        raise ResetRefused("the service does not run here, so it has no region")
    workers = [report for _, report in service.workers]
    return _show(arguments, workers) if arguments.subcommand == "show" else _reset(arguments, run_directory, workers)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the subcommands of `region`."""
    add_subcommands(
        parser,
        Subcommand("show", "show the state of each worker's region, its last interval, and who failed"),
        Subcommand("reset", "reset a region that has failed to its last checkpoint", _add_reset),
        is_required=True,
    )


def find_regions(workers: list[StatusReport]) -> tuple[WorkerRegion, ...]:
    return tuple(WorkerRegion(each.slot, each.region, each.participants) for each in workers)


def _show(arguments: Namespace, workers: list[StatusReport]) -> ExitCode:
    regions = find_regions(workers)
    if arguments.json:
        for each in regions:
            sys.stdout.write(msgspec.json.encode(each).decode() + "\n")
    else:
        _print(regions)
    has_failed = any(each.region is not None and each.region.state is RegionState.FAILED for each in regions)
    return ExitCode.NOT_SO if has_failed else ExitCode.DONE


def _print(regions: tuple[WorkerRegion, ...]) -> None:
    """Print a table that is not wrapped, so that other programs can search its lines."""
    rows = [_COLUMNS, *(tuple(map(printable, _cells(each))) for each in regions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
    for each in regions:
        sys.stdout.writelines(printable(line) + "\n" for line in _failures(each))


def _cells(each: WorkerRegion) -> tuple[str, ...]:
    found = each.region
    participants = ", ".join(f"{one.name} ({', '.join(one.abilities) or 'nothing'})" for one in each.participants)
    if found is None:
        return (str(each.worker), "starting", *("–" for _ in range(5)), participants or "–")
    spans = (found.drain_ms, found.checkpoint_ms, found.publication_ms)
    resets = str(found.resets) if found.reset_ms is None else f"{found.resets} (last {found.reset_ms} ms)"
    shown = ("–" if span is None else f"{span} ms" for span in spans)
    return (str(each.worker), found.state, f"{found.interval} ({found.trigger})", *shown, resets, participants)


def _failures(each: WorkerRegion) -> Iterator[str]:
    found = each.region
    if found is not None and found.failure is not None:
        failure = found.failure
        yield f"worker {each.worker}: {failure.participant} failed at {failure.at}: {failure.reason}"
    if found is not None and found.state is RegionState.FAILED:
        again = counted(found.attempts, "reset")
        yield f"worker {each.worker}: {again} in a row did not help; mend the cause, then `resequencer region reset`"


def _reset(arguments: Namespace, run_directory: Path, workers: list[StatusReport]) -> ExitCode:
    slots = [each.slot for each in workers if _is_meant(arguments, each)]
    if not slots:
        raise ResetRefused("no region has failed; --force resets them all the same, --worker N one of them")
    by = sign().by
    orders = {slot: order_reset(run_directory, slot, by, is_forced=arguments.force) for slot in slots}
    code = ExitCode.DONE
    for slot, order in orders.items():
        report = await_reset(run_directory, slot, order, arguments.wait)
        if report is None:
            sys.stdout.write(f"worker {slot}: no answer yet; the order stands as long as the worker runs\n")
            code = ExitCode.OUT_OF_REACH
            continue
        told, is_done = _tell(report, outcome_of(report, order))
        if arguments.json:
            told = msgspec.json.encode(WorkerRegion(report.slot, report.region, report.participants)).decode()
        sys.stdout.write((told if arguments.json else printable(f"worker {slot}: {told}")) + "\n")
        code = code if is_done else max(code, ExitCode.NOT_SO)
    return code


def _tell(report: StatusReport, outcome: OrderedReset | None) -> tuple[str, bool]:
    """Return what to say, and whether the region was reset."""
    found = report.region
    if outcome is None or found is None:
        return "the worker has ended meanwhile, which resets its region, too", True
    if outcome.refusal is not None:
        return f"refused: {outcome.refusal}", False
    if found.state is RegionState.FAILED and found.failure is not None:
        return f"reset, and it has failed again: {found.failure.participant}: {found.failure.reason}", False
    return f"reset; the region is {found.state}", True


def _is_meant(arguments: Namespace, report: StatusReport) -> bool:
    if arguments.worker is not None:
        return bool(report.slot == arguments.worker)
    return arguments.force or (report.region is not None and report.region.state is RegionState.FAILED)


def _add_reset(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="also while the region runs")
    parser.add_argument("--worker", type=int, metavar="N", help="only that of this worker; default: all that have failed")
    parser.add_argument(
        "--wait", type=float, default=_WAIT_SECONDS, metavar="SECONDS", help="how long to wait for the worker; default: 30"
    )
