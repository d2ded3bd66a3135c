"""`resequencer delivery`: delivers notifications, and lists and steers the jobs, the schedules and what is blocked in topics."""

import getpass
import re
import secrets
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from notification_service.commands.command import (
    Subcommand,
    add_subcommands,
    instant,
    load_for,
    say,
    stop_signal,
    write_row,
)
from notification_service.configuration.configuration import Configuration
from notification_service.delivery.core.jobs import ErrorFilter, GateReport, Job, RowError, WaitingRow
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind
from notification_service.delivery.direct.core.receiver_orders import outcome_texts, places_of
from notification_service.delivery.errors import JobRefused, OrderRefused
from notification_service.delivery.ledger.job_orders import MAX_RETRIED
from notification_service.delivery.ledger.jobs import LIVE_JOB, SCHEDULE_JOB
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.events.identifiers import find_id_flaw
from notification_service.status.delivery import BlockedStatus, backlog_text, delivery_lines, schedule_line
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service as find_running
from notification_service.supervision.service_log import configure_logs
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import note_from_shell, sign
from notification_service.wiring.delivery import find_partitions_of, make_ledger, make_report, make_worker, order_delivery
from notification_service.wiring.delivery_sources import (
    delivers_files,
    find_service,
    source_of_archive,
    source_of_files,
    source_of_topic,
)
from notification_service.wiring.side_reports import find_delivery_of
from resequencer.clock import instant_text
from resequencer.printable import counted
from resequencer.record import Origin, Partition

_WAIT_SECONDS = 30.0


class _Blocked(BlockedStatus, frozen=True, kw_only=True):
    """A line of the list. `lies_in` is the partition that the record was read from: the source's, or a retry topic's."""

    receiver: str
    lies_in: str

    @property
    def is_moved(self) -> bool:
        """Whether it blocks nothing: it is no longer in the source, and ends by itself."""
        origin = Origin.find(self.position)
        return origin is None or str(origin.partition) != self.lies_in


def blocked(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """List what blocks keys of receivers that are delivered to straight from topics."""
    service = find_running(configuration.notification.run_directory, SystemClock().now())
    found = find_delivery_of(configuration, service).direct
    total = listed = 0
    for receiver in found:
        if arguments.receiver not in (None, receiver.receiver):
            continue
        for partition in receiver.partitions:
            total += partition.blocked
            for each in partition.records:
                listed += 1
                shown = _Blocked(**msgspec.structs.asdict(each), receiver=receiver.receiver, lies_in=partition.partition)
                write_row(arguments, shown, _line(shown))
    if not total and not arguments.json and service.holder is not None:
        sys.stdout.write("nothing is blocked\n")
    of_all = "" if listed == total else f", the first {listed} are shown"
    running = "" if service.holder is not None else "; the service does not run"
    others = "; workers that `delivery run` has started write to their logs only"
    say(f"{counted(total, 'blocked record')}{of_all}{running}{others}")
    return ExitCode.DONE


def _line(each: _Blocked) -> str:
    place = f"  in {each.lies_in}, where it blocks nothing" if each.is_moved else ""
    tried = f"since {each.since}  {counted(each.attempts, 'attempt')}{place}"
    return f"{each.receiver}  {each.position}  {each.key}  {tried}  {each.error}"


def _order(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Give an order for a record or for partitions, and wait for the outcomes. Raises as `_give`."""
    kind = DirectOrderKind(arguments.subcommand)
    if kind is DirectOrderKind.SKIP:
        return _give(arguments, configuration, [arguments.place.partition], arguments.place.offset)
    return _give(arguments, configuration, places_of(arguments.place, find_partitions_of(configuration, arguments.receiver)))


def _give(
    arguments: Namespace, configuration: Configuration, places: Sequence[Partition | None], offset: int | None = None
) -> ExitCode:
    """Give an order to each place, None for the receiver, and wait for the outcomes.

    Raises:
        ReceiverUnknown: There is no such receiver.
        OrderRefused: There is no such partition, or all owners refuse the order.
    """
    kind, (by, at) = DirectOrderKind(arguments.subcommand), sign()
    given = [
        (each, DirectOrder(id=secrets.token_hex(16), order=kind, by=by, because=arguments.because, at=at, offset=offset))
        for each in places
    ]
    outcomes = order_delivery(configuration, arguments.receiver, given, _WAIT_SECONDS)
    for text in outcome_texts(places, outcomes, _WAIT_SECONDS):
        say(text)
    return ExitCode.DONE


def _add_blocked(parser: ArgumentParser) -> None:
    parser.add_argument("receiver", nargs="?", metavar="RECEIVER")


def _add_skip(parser: ArgumentParser) -> None:
    _add_order(parser)
    parser.add_argument("place", type=_origin, metavar="TOPIC-PARTITION@OFFSET", help="the record, as `blocked` lists it")


def _add_partition(parser: ArgumentParser) -> None:
    _add_order(parser)
    parser.add_argument("place", metavar="TOPIC-PARTITION", help="or TOPIC: each partition that it has at this moment")


def _add_retry_now(parser: ArgumentParser) -> None:
    parser.add_argument("receiver", metavar="RECEIVER")
    what = "a row, as `waiting` lists it, or a record, as `blocked` lists it; without it: a shut gate tries its receiver now"
    parser.add_argument("what", nargs="?", metavar="ROW | TOPIC-PARTITION@OFFSET", help=what)
    parser.add_argument("--because", default="tried again by hand", metavar="TEXT", help="why; it is kept with the order")


def _row(text: str) -> int:
    """Return the number of a row. Raises JobRefused for another text."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise JobRefused(f"expected the number of a row, as `resequencer delivery waiting` lists it, not {text!r}")
    return int(text)


def _add_order(parser: ArgumentParser) -> None:
    parser.add_argument("receiver", metavar="RECEIVER")
    parser.add_argument("--because", required=True, metavar="TEXT", help="the reason; it is stored with the order")


def _origin(text: str) -> Origin:
    found = Origin.find(text)
    if found is None:
        raise ArgumentTypeError(f"expected TOPIC-PARTITION@OFFSET, such as NOTIFICATIONS-0@17, not {text!r}")
    return found


def _schedules(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """List the schedules."""
    service = find_running(configuration.notification.run_directory, SystemClock().now())
    found = find_delivery_of(configuration, service).schedules
    for each in found:
        write_row(arguments, each, schedule_line(each))
    configured = len(configuration.delivery.schedules)
    running = "" if service.holder is not None else "; the service does not run"
    say(f"{counted(configured, 'schedule')}, {len(found)} reported{running}")
    return ExitCode.DONE


_Row = TypeVar("_Row", bound=msgspec.Struct)
_MAX_ERRORS = 1_000
_MAX_WAITING = 100
_MAX_HELD = 100


def delivery(arguments: Namespace) -> ExitCode:
    """Run the subcommand."""
    code: ExitCode = arguments.run_subcommand(arguments, load_for(arguments))
    return code


def add_arguments(parser: ArgumentParser) -> None:
    """Add the subcommands of `delivery`."""
    add_subcommands(
        parser,
        Subcommand("run", "deliver in the foreground until SIGTERM; any number of processes may do so", _add_run, _run),
        Subcommand(
            "start", "start a job: deliver what files, the topic or the archive of notifications hold now", _add_start, _start
        ),
        Subcommand("jobs", "list the jobs, the newest first: counts, and how far each is", run=_jobs),
        Subcommand("show", "show one job", _add_job, _show),
        Subcommand("cancel", "cancel a job: nothing more of it is delivered", _add_job, _cancel),
        Subcommand(
            "accept-loss",
            "let a job continue without the part of its source that was removed before it was read",
            _add_accept,
            _accept_loss,
        ),
        Subcommand("retry-failed", "deliver the failed notifications of a job again", _add_retry, _retry_failed),
        Subcommand("errors", "list why notifications of a job failed or were rejected", _add_job, _errors),
        Subcommand("status", "show workers, receivers and schedules as the running service reports them", run=_status),
        Subcommand(
            "gates", "list the receivers: what waits, and whether they are called (gate open) or not (gate shut)", run=_gates
        ),
        Subcommand(
            "open-gate",
            "call a receiver again whose gate is shut, before the next call that tries it (probe)",
            _add_receiver,
            _open_gate,
        ),
        Subcommand("waiting", "list what is due first for a receiver, and what it waits for", _add_receiver, _waiting),
        Subcommand("release", "let a unit continue that a failed notification holds", _add_release, _release),
        Subcommand("pause", "call a receiver no more, from any worker, until `resume`", _add_order, _of_receiver),
        Subcommand("resume", "call a paused receiver again", _add_order, _of_receiver),
        Subcommand("retry-now", "make a call now that would be made later", _add_retry_now, _of_receiver),
        Subcommand(
            "blocked", "list the records that are blocked in topics, as the running service reports them", _add_blocked, blocked
        ),
        Subcommand("skip", "order that a blocked record becomes a dead letter, so that its key continues", _add_skip, _order),
        Subcommand(
            "skip-all", "order that all that fails in partitions becomes dead letters, until `block`", _add_partition, _order
        ),
        Subcommand("block", "order that what fails in partitions is tried again, as the policy says", _add_partition, _order),
        Subcommand("schedules", "list the schedules: their last and next ticks, and how many requests were made", run=_schedules),
        is_required=True,
    )


_RunsWithConfiguration = Callable[[Namespace, Configuration], ExitCode]


def _with_ledger(run: Callable[[Namespace, Ledger], ExitCode]) -> _RunsWithConfiguration:
    """Return the function of a subcommand that needs the ledger alone."""

    def run_with_ledger(arguments: Namespace, configuration: Configuration) -> ExitCode:
        with closing(make_ledger(configuration)) as ledger:
            return run(arguments, ledger)

    return run_with_ledger


def _changes_ledger(*names: str) -> Callable[[Callable[[Namespace, Ledger], ExitCode]], _RunsWithConfiguration]:
    """As `_with_ledger`, for what changes it: the audit log has a line before, with the arguments of these names."""

    def changes(run: Callable[[Namespace, Ledger], ExitCode]) -> _RunsWithConfiguration:
        def run_noted(arguments: Namespace, configuration: Configuration) -> ExitCode:
            details = {name: getattr(arguments, name) for name in names}
            note_from_shell(configuration, f"delivery.{arguments.subcommand}", **details)
            return _with_ledger(run)(arguments, configuration)

        return run_noted

    return changes


def _run(arguments: Namespace, configuration: Configuration) -> ExitCode:
    with closing(make_ledger(configuration, arguments.slot, find_service(configuration))) as ledger:
        stop = stop_signal(arguments)
        configure_logs(configuration.logging)
        report = None if arguments.slot is None else make_report(configuration, arguments.slot)
        make_worker(configuration, ledger, arguments.slot).run(lambda: stop.is_set, report)
    return ExitCode.DONE


def _start(arguments: Namespace, configuration: Configuration) -> ExitCode:
    with closing(make_ledger(configuration, None, find_service(configuration))) as ledger:
        if arguments.receiver not in ledger.receivers:
            raise JobRefused(f"there is no receiver {arguments.receiver}; known are {', '.join(ledger.receivers)}")
        if arguments.job.startswith((LIVE_JOB, SCHEDULE_JOB)):
            raise JobRefused(f"{LIVE_JOB}… and {SCHEDULE_JOB}… are the names of the jobs that never end; choose another name")
        if (flaw := find_id_flaw(arguments.job)) is not None:
            raise JobRefused(f"the name of the job {flaw}; choose another name")
        if (found := ledger.find_job(arguments.job)) is not None:
            # What a source holds now is not what it held then.
            if found.receiver != arguments.receiver or not delivers_files(found.source, arguments.files):
                raise JobRefused(f"there is a job {arguments.job} already, which delivers something else: choose another name")
            say(f"started before {arguments.job}")
            return ExitCode.DONE
        is_new = ledger.start_job(arguments.job, arguments.receiver, _source(arguments, configuration), getpass.getuser())
        say(f"{'started' if is_new else 'started before'} {arguments.job}")
        return ExitCode.DONE


def _source(arguments: Namespace, configuration: Configuration) -> str:
    if arguments.files and (arguments.topic or arguments.archive or arguments.since or arguments.until or arguments.offsets):
        problem = "--topic, --archive, --since, --until and --from-offset do not go with them"
        raise JobRefused(f"files are delivered whole: {problem}")
    if arguments.offsets and (not arguments.topic or arguments.since):
        raise JobRefused("--from-offset goes with --topic alone, and not with --since")
    if arguments.topic:
        return source_of_topic(configuration, arguments.since, arguments.until, dict(arguments.offsets))
    if arguments.archive:
        return source_of_archive(configuration, arguments.since, arguments.until)
    if not arguments.files:
        raise JobRefused("name files of notifications, or --topic, or --archive")
    missing = [path for path in arguments.files if not path.is_file()]
    if missing:
        raise JobRefused(f"{missing[0]} is missing or is no file")
    return source_of_files(configuration, arguments.files)


@_with_ledger
def _jobs(arguments: Namespace, ledger: Ledger) -> ExitCode:
    return _list(arguments, ledger.jobs(), job_line, "job")


@_with_ledger
def _show(arguments: Namespace, ledger: Ledger) -> ExitCode:
    job = ledger.find_job(arguments.job)
    if job is None:
        raise JobRefused(f"there is no job {arguments.job}; `resequencer delivery jobs` lists them")
    return _list(arguments, [job], job_line, "job")


@_changes_ledger("job")
def _cancel(arguments: Namespace, ledger: Ledger) -> ExitCode:
    ledger.cancel_job(arguments.job)
    say(f"cancelled {arguments.job}")
    return ExitCode.DONE


@_changes_ledger("job", "because")
def _accept_loss(arguments: Namespace, ledger: Ledger) -> ExitCode:
    lacks = ledger.accept_loss(arguments.job, getpass.getuser(), arguments.because)
    say(f"{arguments.job} continues without {lacks}")
    return ExitCode.DONE


def _retry_failed(arguments: Namespace, configuration: Configuration) -> ExitCode:
    with closing(make_ledger(configuration)) as ledger:
        return _retried(arguments, configuration, ledger)


def _retried(arguments: Namespace, configuration: Configuration, ledger: Ledger) -> ExitCode:
    if arguments.error or arguments.since is not None or arguments.count:
        return _retry_chosen(arguments, configuration, ledger)
    note_from_shell(configuration, "delivery.retry-failed", job=arguments.job, late=str(arguments.late).lower())
    done, remaining = ledger.retry_failed(arguments.job, with_late=arguments.late)
    text = f"{counted(done, 'notification')} of {arguments.job} will be delivered again"
    if remaining:
        text += f"; {remaining} are not, because a later one of the unit was delivered already: --late delivers them all the same"
    say(text)
    return ExitCode.DONE


def _retry_chosen(arguments: Namespace, configuration: Configuration, ledger: Ledger) -> ExitCode:
    """Count the failed rows that the filter chooses; deliver them again unless only their number is wanted."""
    job, only, late = arguments.job, ErrorFilter(arguments.error, arguments.since), arguments.late
    chosen = ledger.count_failed(job, only, with_late=late)
    chosen_text = f"more than {counted(MAX_RETRIED, 'notification')}" if chosen > MAX_RETRIED else counted(chosen, "notification")
    if arguments.count:
        say(f"{chosen_text} of {job} would be delivered again")
        return ExitCode.DONE
    since = None if only.since is None else instant_text(only.since)
    details = {"job": job, "error": arguments.error, "since": since, "late": str(late).lower(), "rows": chosen_text}
    note_from_shell(configuration, "delivery.retry-failed", **details)
    done = ledger.retry_chosen(job, only, with_late=late)
    more = "; repeat the command for those that remain" if chosen > done else ""
    say(f"{counted(done, 'notification')} of {job} will be delivered again{more}")
    return ExitCode.DONE


@_with_ledger
def _errors(arguments: Namespace, ledger: Ledger) -> ExitCode:
    found = ledger.errors(arguments.job, _MAX_ERRORS)
    job = ledger.find_job(arguments.job)
    if job is not None and job.failed + job.rejected > len(found) == _MAX_ERRORS:
        say(f"{job.failed} notifications have failed and {job.rejected} were rejected; these are the first {_MAX_ERRORS}")
    return _list(arguments, found, error_line, "error")


def _status(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Show delivery as the delivery workers of the running service report it: one line for each worker and each receiver."""
    service = find_running(configuration.notification.run_directory, SystemClock().now())
    found = find_delivery_of(configuration, service)
    if arguments.json:
        write_row(arguments, found, "")
    else:
        sys.stdout.write("".join(f"{each}\n" for each in delivery_lines(found)))
    if service.holder is None:
        say("the service does not run; `resequencer delivery gates` shows what the ledger holds")
    return ExitCode.DONE


@_with_ledger
def _gates(arguments: Namespace, ledger: Ledger) -> ExitCode:
    return _list(arguments, ledger.gates(), gate_line, "gate")


@_changes_ledger("receiver")
def _open_gate(arguments: Namespace, ledger: Ledger) -> ExitCode:
    ledger.open_gate(_known(arguments, ledger))
    paused = next((each.pause for each in ledger.gates() if each.receiver == arguments.receiver), None)
    say(f"opened the gate of {arguments.receiver}" + ("" if paused is None else f"; the receiver stays {paused.text}"))
    return ExitCode.DONE


def _of_receiver(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Pause or resume a receiver, or let it get now what waits: in the ledger, or by an order for all its workers.

    Raises:
        JobRefused, OrderRefused: There is nothing to do; the text says why.
    """
    kind, what = DirectOrderKind(arguments.subcommand), getattr(arguments, "what", None)
    if arguments.receiver in dict(configuration.delivery.of_topics):
        origin = None if what is None else Origin.find(what)
        if what is not None and origin is None:
            raise OrderRefused(f"expected TOPIC-PARTITION@OFFSET, as `resequencer delivery blocked` lists it, not {what!r}")
        return _give(arguments, configuration, [origin and origin.partition], origin and origin.offset)
    with closing(make_ledger(configuration)) as ledger:
        receiver = _known(arguments, ledger, *dict(configuration.delivery.of_topics))
        row = None if what is None else _row(what)
        note_from_shell(configuration, f"delivery.{kind.value}", receiver=receiver, row=row, because=arguments.because)
        if kind is DirectOrderKind.PAUSE:
            ledger.pause(receiver, sign().by, arguments.because)
            say(f"{receiver} is paused: no call begins until `resume`; those under way end")
        elif kind is DirectOrderKind.RESUME:
            ledger.resume(receiver)
            say(f"{receiver} gets calls again")
        else:
            say(f"row {ledger.retry_now(receiver, row)} is due now")
    return ExitCode.DONE


@_with_ledger
def _waiting(arguments: Namespace, ledger: Ledger) -> ExitCode:
    found = ledger.waiting(_known(arguments, ledger), _MAX_WAITING)
    for unit, row in ledger.held(arguments.receiver, _MAX_HELD):
        say(f"unit {unit} is held by its failed notification, row {row} of the ledger")
    return _list(arguments, found, _waiting_line, "row")


def _waiting_line(row: WaitingRow) -> str:
    mode, error = f" ({row.mode})" if row.mode else "", f"  {row.error}" if row.error else ""
    state = f"{row.unit}  {row.status}{mode}  {row.step} due {instant_text(row.due_at)}"
    return f"row {row.row}  {state}  attempts {row.attempts}  job {row.job}{error}"


@_changes_ledger("receiver", "unit")
def _release(arguments: Namespace, ledger: Ledger) -> ExitCode:
    ledger.release_unit(_known(arguments, ledger), arguments.unit)
    say(f"released {arguments.unit}")
    return ExitCode.DONE


def job_line(job: Job) -> str:
    """Return a job on one line for people."""
    expected = "?" if job.expected is None else str(job.expected)
    retries = ", ".join(f"{name} {count}" for name, count in msgspec.structs.asdict(job.retries).items() if count) or "none"
    parts = [
        f"{job.id}  {job.state.value}  to {job.receiver}  {job.processed} of {expected} processed",
        f"{job.rejected} rejected, {job.failed} failed, {job.cancelled} cancelled, {job.open} open",
        f"{job.duplicates} duplicates, {job.not_selected} not selected",
        f"retries: {retries}",
    ]
    parts += [f"{counted(job.held_units, 'unit')} held"] if job.held_units else []
    parts += [f"lacks {job.lacks}"] if job.lacks else []
    parts += [f"accepted: {each}" for each in job.accepted.splitlines()]
    return "  ".join([*parts, f"started {instant_text(job.started_at)} by {job.started_by}"])


def gate_line(gate: GateReport) -> str:
    """Return a gate on one line for people."""
    state = "open" if gate.is_open else "shut"
    waiting = f"{gate.waiting} waiting{backlog_text(gate.backlog)}"
    parts = [f"{gate.receiver}  {state}  {waiting}; {gate.running} running, at most {gate.limit} at once"]
    if gate.probe_at is not None and gate.since is not None:
        parts.append(f"since {instant_text(gate.since)}, next probe {instant_text(gate.probe_at)}: {gate.reason}")
    parts += [f"{counted(gate.held_units, 'unit')} held"] if gate.held_units else []
    parts += [gate.pause.text] if gate.pause is not None else []
    return "  ".join([*parts, f"{gate.probes} probes, slept {gate.slept_ms / 1_000:.0f} s"])


def error_line(error: RowError) -> str:
    """Return an error on one line for people."""
    calls = counted(error.attempts, "call")
    at = instant_text(error.at)
    return f"{error.unit}  {error.notification_id}  {error.status}  {error.step}  {calls}  {at}  {error.error}"


def _list(arguments: Namespace, found: Iterable[_Row], line: Callable[[_Row], str], noun: str) -> ExitCode:
    rows = list(found)
    for each in rows:
        write_row(arguments, each, line(each))
    say(counted(len(rows), noun))
    return ExitCode.DONE


def _known(arguments: Namespace, ledger: Ledger, *others: str) -> str:
    receiver: str = arguments.receiver
    if receiver not in ledger.receivers:
        raise JobRefused(f"there is no receiver {receiver}; known are {', '.join((*ledger.receivers, *others))}")
    return receiver


def _add_run(parser: ArgumentParser) -> None:
    """Add what only a supervisor gives its delivery workers."""
    parser.add_argument("--slot", type=int, help=SUPPRESS)
    parser.add_argument("--lifeline", type=int, help=SUPPRESS)


def _add_start(parser: ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a name of your choice; the same command again changes nothing")
    parser.add_argument("receiver", metavar="RECEIVER")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="files of notifications, in this order")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--topic", action="store_true", help="deliver what the topic of notifications holds now")
    held.add_argument("--archive", action="store_true", help="deliver what the archive of the topics holds now")
    parser.add_argument("--since", type=instant, metavar="INSTANT", help="only what was written then or later: 2026-03-28T18:00Z")
    parser.add_argument("--until", type=instant, metavar="INSTANT", help="only what was written before")
    parser.add_argument(
        "--from-offset",
        dest="offsets",
        action="append",
        default=[],
        type=_offset,
        metavar="PARTITION@OFFSET",
        help="only this partition of the topic, from this offset on; once for each partition",
    )


def _offset(text: str) -> tuple[int, int]:
    """Return partition and offset. Raises ArgumentTypeError for another text."""
    found = re.fullmatch(r"([0-9]{1,9})@([0-9]{1,18})", text)
    if found is None:
        raise ArgumentTypeError(f"{text} is not PARTITION@OFFSET, such as 3@1200")
    return int(found[1]), int(found[2])


def _add_job(parser: ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")


def _add_accept(parser: ArgumentParser) -> None:
    _add_job(parser)
    parser.add_argument("--because", required=True, metavar="TEXT", help="the reason; it is stored with the job")


def _add_retry(parser: ArgumentParser) -> None:
    _add_job(parser)
    parser.add_argument("--late", action="store_true", help="also those behind which a later one of the unit was delivered")
    parser.add_argument("--error", default="", metavar="TEXT", help="only those whose error contains this text")
    parser.add_argument(
        "--since", type=instant, metavar="INSTANT", help="only those that failed then or later: 2026-03-28T18:00Z"
    )
    parser.add_argument(
        "--count", action="store_true", help=f"only say how many; with a filter {MAX_RETRIED} at most are delivered at once"
    )


def _add_receiver(parser: ArgumentParser) -> None:
    parser.add_argument("receiver", metavar="RECEIVER")


def _add_release(parser: ArgumentParser) -> None:
    _add_receiver(parser)
    parser.add_argument("unit", metavar="UNIT")
