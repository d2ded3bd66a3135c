"""`resequencer region show` and `resequencer region reset`: the regions of this machine's workers (docs/regions.md)."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

import msgspec

from guardian.region import RegionState
from notification_service.commands.command import Subcommand, add_subcommands, load_for
from notification_service.status.report import ParticipantStatus, RegionStatus, StatusReport
from notification_service.status.service_report import NOT_RUNNING, STALE, find_reports
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import sign
from notification_service.wiring.regions import RegionNotReset, give_order
from resequencer.printable import counted, printable

_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_UNANSWERED = "no answer yet: the order stands until the worker reads it, between two intervals"
_HEADINGS = ("worker", "state", "intervals", "drain", "checkpoint", "publication", "reset", "resets", "in a row")


class ShownRegion(msgspec.Struct, frozen=True):
    """One line of `show --json`. `region` is None while the worker has not told it."""

    slot: int
    state: str
    region: RegionStatus | None


def region(arguments: Namespace) -> ExitCode:
    """Run `resequencer region show | reset`."""
    return _show(arguments) if arguments.subcommand == "show" else _reset(arguments)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `region`."""
    add_subcommands(
        parser,
        Subcommand("show", "the state of each worker's region, its last durations, and its participants"),
        Subcommand("reset", "let a failed region go back to its last checkpoint and begin anew", _add_reset),
        is_required=True,
    )


def region_lines(shown: Sequence[ShownRegion]) -> Iterator[str]:
    """A table of the regions, then the participants of each and what failed last."""
    rows = [_HEADINGS, *(_row(each) for each in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for each in shown:
        if each.region is None:
            continue
        yield from (f"worker {each.slot}: {_participant(one)}" for one in each.region.participants)
        if each.region.failure is not None:
            yield f"worker {each.slot}: failed last at {each.region.failed_at}: {each.region.failed}: {each.region.failure}"


def _show(arguments: Namespace) -> ExitCode:
    """Print the regions. Exit code 0 only if the service runs and no region has failed."""
    run_directory = load_for(arguments).notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    shown = [_shown(state, each) for state, each in service.workers] if service is not None else []
    if arguments.json:
        sys.stdout.writelines(msgspec.json.encode(each).decode() + "\n" for each in shown)
    elif shown:
        sys.stdout.writelines(printable(line) + "\n" for line in region_lines(shown))
    if service is None or state == NOT_RUNNING:
        sys.stderr.write(f"resequencer: the service is {state}\n")
        return ExitCode.NOT_SO
    sys.stderr.write(f"resequencer: {counted(len(shown), 'region')} by the workers' last reports\n")
    has_failed = any(each.region is not None and each.region.state == RegionState.FAILED for each in shown)
    return ExitCode.NOT_SO if has_failed else ExitCode.DONE


def _reset(arguments: Namespace) -> ExitCode:
    run_directory = load_for(arguments).notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    if service is None or state == NOT_RUNNING:
        raise RegionNotReset(f"the service is {state}, so there is no region to reset; its start begins at the last checkpoint")
    workers = [each for _, each in service.workers if arguments.worker in (None, each.slot)]
    if not workers:
        raise RegionNotReset(f"there is no worker {arguments.worker}")
    failed = [each for each in workers if each.region is not None and each.region.state == RegionState.FAILED]
    chosen = workers if arguments.force or arguments.worker is not None else failed
    if not chosen:
        raise RegionNotReset("no region has failed; to reset them all the same, add --force")
    given = {each.slot: give_order(run_directory, each, sign().by, is_forced=arguments.force) for each in chosen}
    waited_for = ", ".join(map(str, given))
    sys.stderr.write(f"resequencer: the order is given to worker {waited_for}; waiting for what comes of it\n")
    answers = _await(run_directory, given, arguments.wait)
    for slot in sorted(given):
        answer = answers.get(slot)
        told = _UNANSWERED if answer is None else answer.answer
        if arguments.json:
            line = {"slot": slot, "order": given[slot], "isDone": None if answer is None else answer.has_obeyed, "text": told}
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        else:
            sys.stdout.write(printable(f"worker {slot}: {told}") + "\n")
    if not all(each.has_obeyed for each in answers.values()):
        return ExitCode.NOT_SO
    return ExitCode.DONE if len(answers) == len(given) else ExitCode.OUT_OF_REACH


def _await(run_directory: Path, given: Mapping[int, str], seconds: float) -> dict[int, RegionStatus]:
    """Return the answers that come within so many seconds, by slot."""
    until, answers = monotonic() + seconds, dict[int, RegionStatus]()
    while True:
        for each in find_reports(run_directory):
            if each.region is not None and each.region.answered == given.get(each.slot, ""):
                answers[each.slot] = each.region
        if len(answers) == len(given) or monotonic() >= until:
            return answers
        sleep(_LOOK_SECONDS)


def _shown(state: str, report: StatusReport) -> ShownRegion:
    """A worker that does not run, or does not report any more, has no state of its own."""
    found = report.region
    own = state if found is None or state in (NOT_RUNNING, STALE) else found.state
    return ShownRegion(report.slot, own, found)


def _row(each: ShownRegion) -> tuple[str, ...]:
    found = each.region
    if found is None:
        return (str(each.slot), each.state, "", "", "", "", "", "", "")
    durations = (found.drain_ms, found.checkpoint_ms, found.publication_ms, found.reset_ms)
    return (str(each.slot), each.state, str(found.sequence), *map(_duration, durations), str(found.resets), str(found.attempts))


def _duration(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds} ms"


def _participant(each: ParticipantStatus) -> str:
    able = {"can replay": each.can_replay, "transactional": each.is_transactional, "remembers": each.remembers}
    words = [name if has else f"not {name}" for name, has in able.items() if has is not None]
    words = [word.replace("not can replay", "cannot replay").replace("not remembers", "does not remember") for word in words]
    problem = "" if each.problem is None else f"; its last call failed: {each.problem}"
    return f"{each.name} ({each.role}): {', '.join(words)}{problem}"


def _add_reset(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="reset regions that have not failed, too")
    parser.add_argument(
        "--worker", type=int, metavar="SLOT", help="only that of this worker; default: all that have failed, with --force all"
    )
    parser.add_argument(
        "--wait", type=float, default=_WAIT_SECONDS, metavar="SECONDS", help="how long to wait for the answer; default: 30"
    )
