"""`resequencer region | sink`: the regions of this machine's workers, and the attributes of the sink mqtt."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

import msgspec

from guardian.region import RegionState
from notification_service.commands.command import Subcommand, add_subcommands, load_for, say, write_row
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Notifications, TransportType
from notification_service.configuration.transports import sinks_of
from notification_service.status.report import ParticipantStatus, RegionStatus, StatusReport
from notification_service.status.service_report import NOT_RUNNING, STALE, find_reports
from notification_service.status.sink_attributes import ShownAttribute, changes_text
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import note_from_shell, sign
from notification_service.wiring.regions import ATTRIBUTES, LocalRegions, LocalSink, RegionNotReset
from resequencer.errors import ConfigurationError
from resequencer.printable import counted, printable

_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_UNANSWERED = "no answer yet: the order stands until the worker reads it, between two intervals"
_HEADINGS = ("worker", "state", "intervals", "drain", "checkpoint", "publication", "reset", "resets", "in a row")


class ShownRegion(msgspec.Struct, frozen=True):
    """One line of `show --json`. `region` is None while the worker has not reported it."""

    slot: int
    state: str
    region: RegionStatus | None


def region(arguments: Namespace) -> ExitCode:
    """Run `resequencer region show | reset`."""
    return _show_region(arguments) if arguments.subcommand == "show" else _reset(arguments)


def add_region_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `region`."""
    add_subcommands(
        parser,
        Subcommand("show", "the state of each worker's region, its last durations, and its participants: source and sinks"),
        Subcommand("reset", "let a failed region go back to its last checkpoint, or any to its initial state", _add_reset),
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
            yield f"worker {each.slot}: last failure at {each.region.failed_at}: {each.region.failed}: {each.region.failure}"


def _show_region(arguments: Namespace) -> ExitCode:
    """Print the regions. Exit code 0 only if the service runs and no region has failed."""
    run_directory = load_for(arguments).notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    shown = [_shown(state, each) for state, each in service.workers] if service is not None else []
    if arguments.json:
        sys.stdout.writelines(msgspec.json.encode(each).decode() + "\n" for each in shown)
    elif shown:
        sys.stdout.writelines(printable(line) + "\n" for line in region_lines(shown))
    if service is None or state == NOT_RUNNING:
        say(f"the service is {state}")
        return ExitCode.FAILED
    say(f"{counted(len(shown), 'region')} by the workers' last reports")
    has_failed = any(each.region is not None and each.region.state == RegionState.FAILED for each in shown)
    return ExitCode.FAILED if has_failed else ExitCode.DONE


def _reset(arguments: Namespace) -> ExitCode:
    configuration = load_for(arguments)
    run_directory = configuration.notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    if service is None or state == NOT_RUNNING:
        raise RegionNotReset(f"the service is {state}, so there is no region to reset; its start begins at the last checkpoint")
    workers = [each for _, each in service.workers if arguments.worker in (None, each.slot)]
    if not workers:
        raise RegionNotReset(f"there is no worker {arguments.worker}")
    failed = [each for each in workers if each.region is not None and each.region.state == RegionState.FAILED]
    chosen = workers if arguments.force or arguments.to_initial or arguments.worker is not None else failed
    if not chosen:
        raise RegionNotReset("no region has failed; to reset them all the same, add --force")
    given = _give(arguments, configuration, [each.slot for each in chosen])
    if not given:
        return ExitCode.DONE
    waited_for = ", ".join(map(str, given))
    say(f"the order is given to worker {waited_for}; waiting for what comes of it")
    answers = _await(run_directory, given, arguments.wait)
    for slot in sorted(given):
        answer = answers.get(slot)
        text = _UNANSWERED if answer is None else answer.answer
        row = {"slot": slot, "order": given[slot], "isDone": None if answer is None else answer.has_obeyed, "text": text}
        write_row(arguments, row, f"worker {slot}: {text}")
    if not all(each.has_obeyed for each in answers.values()):
        return ExitCode.FAILED
    return ExitCode.DONE if len(answers) == len(given) else ExitCode.OUT_OF_REACH


def _give(arguments: Namespace, configuration: Configuration, slots: Sequence[int]) -> dict[int, str]:
    """Give the order to the workers of these slots, and return the ids to wait for, by slot: none of what is only proposed.

    The audit log has a line before, as of what the console does.

    Raises:
        RegionNotReset: It is refused for this service, says no reason, or could not be written.
    """
    by, given, regions = sign().by, dict[int, str](), LocalRegions(configuration)
    if (arguments.dry_run or arguments.because) and not arguments.to_initial:
        raise RegionNotReset("--dry-run and --because go with --to-initial")
    if arguments.to_initial and not arguments.dry_run and not (arguments.because or "").strip():
        raise RegionNotReset("give a reason: --because TEXT. It is stored with your name")
    if arguments.to_initial and regions.refusal is not None:
        raise RegionNotReset(regions.refusal)
    for slot in slots:
        if not arguments.to_initial:
            note_from_shell(configuration, "region.reset", slot=slot, force=arguments.force)
            order_id = regions.reset(slot, by, is_forced=arguments.force)
        elif arguments.dry_run:
            order_id = regions.plan_initial(slot, by)
        else:
            stage = "proposed" if regions.needs_approval else None
            note_from_shell(configuration, "region.reset-to-initial", slot=slot, because=arguments.because, stage=stage)
            order = regions.reset_to_initial(slot, by, arguments.because)
            order_id = None if order is None else order.id
            if order is not None and regions.needs_approval:
                say(f"worker {slot}: proposed as {order.id}: another person has to approve it in the console (http.approval)")
                continue
        if order_id is None:
            raise RegionNotReset(f"worker {slot} does not run any more")
        given[slot] = order_id
    return given


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
        "--worker",
        type=int,
        metavar="SLOT",
        help="only that of this worker; default: all that have failed, with --force or --to-initial all",
    )
    parser.add_argument(
        "--to-initial",
        action="store_true",
        help="forget all units and read the source from its beginning: what was sent is sent again, marked possible-duplicate",
    )
    parser.add_argument("--dry-run", action="store_true", help="with --to-initial: say what that would do, and change nothing")
    parser.add_argument("--because", metavar="TEXT", help="with --to-initial: the reason; it is stored with your name")
    parser.add_argument(
        "--wait", type=float, default=_WAIT_SECONDS, metavar="SECONDS", help="how long to wait for the answer; default: 30"
    )


def add_sink_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `sink`."""
    add_subcommands(
        parser,
        Subcommand("show", "server, qos and topics that are in force, and what is configured"),
        Subcommand("set", "change some of them: from the next publication on, and after each reset and start", _add_set),
        Subcommand("reset", "go back to what is configured"),
        is_required=True,
    )


def sink(arguments: Namespace) -> ExitCode:
    """Run `resequencer sink show | set | reset`.

    Raises:
        ConfigurationError: The service has no sink mqtt, or a value is refused.
        SinkNotSet: A region is being reset, or the file cannot be read or written. Nothing has changed.
    """
    configuration = load_for(arguments)
    if TransportType.MQTT not in sinks_of(configuration):
        problem = "names no mqtt: only the attributes of that sink can be changed"
        raise ConfigurationError(path_of(Notifications, "transport"), problem)
    local = LocalSink(configuration)
    if arguments.subcommand == "set":
        given = {each.name: text for each in ATTRIBUTES if (text := getattr(arguments, each.field)) is not None}
        note_from_shell(configuration, "sink.set", attributes=changes_text(given))
        for note in local.set(given, sign().by):
            say(note)
    elif arguments.subcommand == "reset":
        note_from_shell(configuration, "sink.reset")
        local.reset()
    _show_sink(local.shown(), as_json=arguments.json)
    return ExitCode.DONE


def _show_sink(shown: Sequence[ShownAttribute], *, as_json: bool) -> None:
    """Print what is in force."""
    if as_json:
        attributes = {each.name: {"value": each.value, "configured": each.configured} for each in shown}
        sys.stdout.write(msgspec.json.encode(attributes).decode() + "\n")
        return
    for each in shown:
        where = "as configured" if each.by is None else f"set by {each.by}; configured: {each.configured}"
        sys.stdout.write(printable(f"{each.name} = {each.value} ({where})") + "\n")


def _add_set(parser: ArgumentParser) -> None:
    for each in ATTRIBUTES:
        parser.add_argument(each.option, dest=each.field, metavar=each.name.upper(), help=each.takes.expects)
