"""`resequencer demo`: runs the main job on simulated payments, pain.001 documents or orders of a shop, and prints the result."""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from shlex import join
from signal import SIGTERM, default_int_handler, signal
from time import monotonic, sleep
from xml.etree.ElementTree import indent, register_namespace, tostring

import msgspec
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped] # defusedxml ships no types.
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from guardian.ports import TransportUnavailable
from notification_service.aggregation.files import ValuesFile
from notification_service.commands.demo_delivery import deliver
from notification_service.commands.simulate import draw_seed
from notification_service.commands.units import agrees, read_output, tell
from notification_service.commands.verify import make_groups_check, refuse_foreign_handler, verify_output
from notification_service.configuration.configuration import Configuration, load
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.events.pass_through import PASS_THROUGH
from notification_service.payments.iso20022.pain002_schema import render_report_xml
from notification_service.simulator import arguments as argument_types
from notification_service.simulator.expectation import ExpectedUnit
from notification_service.simulator.generate.plan import SAMPLES, Events, Plan
from notification_service.simulator.generate.simulation import Summary, simulate
from notification_service.simulator.verify.group_check import GroupsCheck, MessageOutcome
from notification_service.simulator.verify.story import arrivals_of, find_unit, render_story
from notification_service.simulator.verify.verdict import Verdict, render_text
from notification_service.status.file import StatusFile
from notification_service.status.report import State, StatusReport
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.service_process import ServiceProcess
from notification_service.wiring.aggregation import payments_store
from notification_service.wiring.composition import make_decoder
from resequencer.errors import ConfigurationError, ResequencerError


def readable(value: bytes, target_type: str) -> str:
    """Return the report as XML, for either target type of the service; the output of a user's own target type is unchanged."""
    if target_type == "report-xml":
        return _indented(value.decode())
    if target_type not in ("report", "produced-report"):
        return value.decode("utf-8", "replace")
    document = msgspec.json.decode(value)
    return _indented(render_report_xml(document["report"] if target_type == "produced-report" else document))


def _indented(xml: str) -> str:
    """Return the document with one element per line. The notification itself has no line breaks."""
    root = fromstring(xml.encode())
    register_namespace("", root.tag.removeprefix("{").partition("}")[0])
    indent(root)
    return tostring(root, encoding="unicode")


def show_table(console: Console, summary: Summary, status: StatusReport, envelopes_per_second: float) -> None:
    counts = status.counts
    table = Table(title=f"What was put in order (seed {summary.seed})", show_header=False, min_width=60)
    table.add_column("what")
    table.add_column("figure", justify="right")
    rows: Sequence[tuple[str, object]] = (
        ("units", summary.units),
        ("envelopes", summary.lines - summary.garbage),
        ("out of order on arrival", summary.out_of_order),
        ("longest wait", f"{status.longest_wait_ms / 1_000:.1f} s"),
        ("duplicates dropped", counts.get("duplicates", 0)),
        ("units released at the deadline", counts.get("released_units", 0)),
        ("given up, then arrived late", counts.get("late", 0)),
        ("dead letters", sum(status.dead_letters.values())),
        *((f"notifications {name}", count) for name, count in sorted(status.notifications.items())),
        ("envelopes per second", f"{envelopes_per_second:,.0f}"),
    )
    for what, figure in rows:
        table.add_row(what, str(figure))
    console.print(table)


def show_verdict(console: Console, verdict: Verdict) -> None:
    console.print(render_text(verdict), style="green" if verdict.is_good else "red", highlight=False, soft_wrap=True)


def show_story(console: Console, configuration: Configuration, expected: Path) -> bool:
    """Show the story of one unit and its last notification; return whether the output agrees with the unit's own code."""
    with expected.open("rb") as lines:
        unit = find_unit(lines)
    if unit is None:
        console.print("no unit that arrived out of order has a story short enough to show; try another seed")
        return True
    return _show(console, configuration, unit)


def show_console(console: Console, command: Sequence[str]) -> None:
    """Show the command that opens the console, on one line that can be copied whole."""
    console.print("\nTo look at it in a browser:")
    console.print(join(command), markup=False, highlight=False, soft_wrap=True)


def _show(console: Console, configuration: Configuration, unit: ExpectedUnit) -> bool:
    arrivals = arrivals_of(unit, configuration.ingress.file_directory, make_decoder(configuration))
    telling = tell(arrivals, configuration)
    output = read_output(unit.unit, configuration.notification.output_directory / "notifications.jsonl")
    console.print(f"\nThe story of [bold]{unit.unit}[/bold]")
    for line in render_story(telling.steps):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    does_agree = agrees(telling, output)
    if not does_agree:
        console.print("the order of the service's output differs from the order that its own code decides", style="red")
    if not output.lines:
        return does_agree
    if configuration.notification.handler == PASS_THROUGH:
        console.print("\nIts last event, as it was published")
        text, language = msgspec.json.format(encode_line(output.lines[-1]), indent=2).decode(), "json"
    else:
        console.print("\nIts last pain.002")
        text, language = readable(output.lines[-1].content, configuration.notification.target_type), "xml"
    console.print(Syntax(text, language, background_color="default"), soft_wrap=True)
    return does_agree


_SIZES = 8
"""How many sizes of messages the table tells apart."""
_SHOWN = 5
"""How many messages without a report are named."""


class CountedFacts:
    """How far the facts of a run in files are counted, in bytes. `size` is that of all facts."""

    def __init__(self, configuration: Configuration) -> None:
        payments = payments_store(configuration)
        facts = payments.in_directory / "partition-0.jsonl"
        self.size = facts.stat().st_size if facts.exists() else 0
        self._values = payments.directory / "values.db"

    def counted(self) -> int:
        if not self._values.exists():
            return 0
        try:
            with closing(ValuesFile(self._values, is_copy=False)) as file:
                progress = file.progress(0)
        except TransportUnavailable:  # The worker is making the file.
            return 0
        return 0 if progress is None else progress.next_offset


def show_groups(console: Console, check: GroupsCheck) -> None:
    """Show how many messages are complete, with how many payments each, and why no report on the others can come."""
    outcomes, counts = list(check.outcomes()), check.counts()
    table = Table(title="Which messages are through", show_header=False, min_width=60)
    table.add_column("what")
    table.add_column("figure", justify="right")
    complete = [each for each in outcomes if each.why is None]
    rows: list[tuple[str, object]] = [
        ("messages (pain.001)", counts.messages),
        ("complete, and one group report each", counts.complete),
        *((f"  with {_payments(size)}", number) for size, number in _sizes(complete)),
        ("not complete", counts.messages - counts.complete),
        *((f"  {why}", number) for why, number in Counter(each.why for each in outcomes if each.why is not None).most_common()),
        ("payments of messages without an id of their own", counts.without_message),
        ("group reports", counts.reports),
    ]
    for what, figure in rows:
        table.add_row(what, f"{figure:,}" if isinstance(figure, int) else str(figure))
    console.print(table)
    for each in islice((each for each in outcomes if each.why is not None), _SHOWN):
        console.print(f"{each.message_id} is not complete: {each.why}", highlight=False, markup=False, soft_wrap=True)


def show_report(console: Console, configuration: Configuration) -> None:
    """Show one group report in full: that on the message with the most payments."""
    reports = payments_store(configuration).directory / "completions.jsonl"
    found = None
    for _, line in scan_output(reports, SystemFiles()):
        read = decode_line(line.content)
        if isinstance(read, Line) and (found is None or len(read.content) > len(found.content)):
            found = read
    if found is None:
        console.print("\nno message is complete, so there is no group report to show")
        return
    console.print(f"\nOne group report, for [bold]{(found.key or b'').decode(errors='replace')}[/bold]")
    text = readable(found.content, configuration.aggregation.target_type)
    console.print(Syntax(text, "xml", background_color="default"), soft_wrap=True)


def _sizes(complete: list[MessageOutcome]) -> list[tuple[int, int]]:
    """Return how many messages have how many payments; of many sizes those that occur most often."""
    return sorted(Counter(each.payments for each in complete).most_common(_SIZES))


def _payments(count: int) -> str:
    return "1 payment" if count == 1 else f"{count} payments"


_UNITS = 3_000
_STASH_TIMEOUT = "3s"
_STALL_SECONDS = 120
_LOOK_SECONDS = 0.1

_ALL_IN_THE_RUN_DIRECTORY = (
    "ipf.processing-data.ingress.transport=file",
    "ipf.processing-data.ingress.file.directory=null",
    "ipf.processing-data.ingress.file.archive-directory=null",
    "payment-status-notification.transport=file",
    "payment-status-notification.file.directory=null",
    "payment-status-notification.storage.embedded.file=null",
    "payment-status-notification.aggregation.directory=null",
    "payment-status-notification.aggregation.facts.directory=null",
)
"""Overrides of the demo: simulated payments must not get among real ones, whatever the configuration says."""

_OF_EVENTS = {
    Events.PAYMENTS: ("payment-status-notification.aggregation.enabled=true",),
    Events.SHOP: (
        "ipf.processing-data.ingress.events.format=cloudevents",
        "payment-status-notification.handler=pass-through",
        "payment-status-notification.aggregation.enabled=false",
    ),
}
"""And those of each kind of events."""


class TookTooLong(ResequencerError):
    """The service made no progress; the text says with what."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--units", type=argument_types.positive, default=_UNITS, help="payments or orders (default: %(default)s)")
    parser.add_argument(
        "--seed",
        type=argument_types.count,
        help="the same seed makes the same envelopes (default: a random one, which is printed)",
    )
    parser.add_argument(
        "--events",
        choices=[*Events],
        type=Events,
        default=Events.PAYMENTS,
        help="payments (default), or shop: orders of a shop as CloudEvents, which leave as they came",
    )
    parser.add_argument(
        "--delivery", action="store_true", help="then deliver the notifications to a receiver that sleeps, forgets and refuses"
    )
    parser.add_argument(
        "--pain001", type=Path, nargs="+", default=list(SAMPLES), metavar="FILE", help="default: the samples of the project"
    )


def demo(arguments: Namespace) -> ExitCode:
    """Run the demo. All files are under run/demo-<seed>/ afterwards. Exit code 0 only if this run kept every promise."""
    events = arguments.events
    if events is Events.SHOP and (arguments.delivery or arguments.pain001 != list(SAMPLES)):
        raise ConfigurationError("demo", "--events shop has no payments: do not give --pain001 or --delivery with it")
    seed = draw_seed() if arguments.seed is None else arguments.seed
    run_directory = _fresh_directory(seed)
    overrides = [
        *arguments.overrides,
        *_ALL_IN_THE_RUN_DIRECTORY,
        *_OF_EVENTS[events],
        f'payment-status-notification.run-directory="{run_directory}"',
        f"payment-status-notification.resequencer.stash-timeout={_STASH_TIMEOUT}",
    ]
    configuration = load(arguments.config, overrides)
    refuse_foreign_handler(configuration)
    # The service must be stopped on SIGTERM, too.
    signal(SIGTERM, default_int_handler)
    plan = Plan(arguments.units, seed, pain001=tuple(arguments.pain001), late_after_ms=0, events=events)
    console = Console()
    what = "orders of a shop" if events is Events.SHOP else f"payments from {len(plan.pain001)} pain.001 files"
    console.print(f"{plan.units} {what}, seed {seed}; all files in {run_directory}/")
    service = _arguments(arguments.config, overrides)
    run = _Run(configuration, plan, service, console)
    code = run.show() if run.play() else ExitCode.FAILED
    if arguments.delivery and code is ExitCode.DONE:
        with _progress(console) as progress:
            delivered = deliver(arguments.config, overrides, run_directory, progress)
        delivered.show(console)
        code = ExitCode.DONE if delivered.is_good else ExitCode.FAILED
    show_console(console, [_program(), "console", *service])
    return code


class _Run:
    """One demo: feed, watch, stop, compare, show."""

    def __init__(self, configuration: Configuration, plan: Plan, service: list[str], console: Console) -> None:
        self._configuration = configuration
        self._plan = plan
        self._arguments = service
        self._console = console
        self._directory = configuration.notification.run_directory
        self._expected = self._directory / "expected.jsonl"
        self._status = StatusFile(self._directory)
        self._service: ServiceProcess | None = None
        self._groups: ServiceProcess | None = None
        self._summary: Summary | None = None
        self._speed = 0.0

    def play(self) -> bool:
        """Run the demo; return whether the service and what counts its groups have done all, and ended with 0."""
        codes: dict[str, int] = {}
        with _progress(self._console) as progress:
            task = progress.add_task("writing envelopes", total=self._plan.units)
            try:
                self._feed(progress, task)
                codes["service"] = self._service.stop() if self._service else 1
                if self._configuration.aggregation.is_enabled:
                    self._count_groups(progress, task)
                    codes["groups"] = self._groups.stop() if self._groups else 1
            finally:
                for process in (self._service, self._groups):
                    if process:
                        process.stop()
        for name, code in codes.items():
            if code != 0:
                what = {"groups": "worker of the groups"}.get(name, name)
                self._console.print(f"the {what} ended with {code}; see {self._directory}/{name}.log", style="red")
        return not any(codes.values())

    def show(self) -> ExitCode:
        summary, status = self._summary, self._status.find()
        assert summary is not None
        assert status is not None
        show_table(self._console, summary, status, self._speed)
        check = make_groups_check(self._configuration)
        verdict = verify_output(self._configuration, self._expected, check=check)
        if check is not None:
            show_groups(self._console, check)
        show_verdict(self._console, verdict)
        does_agree = show_story(self._console, self._configuration, self._expected)
        if check is not None:
            show_report(self._console, self._configuration)
        # No deadline of a group can have passed.
        is_good = verdict.is_good and does_agree and (check is None or not check.counts().incomplete)
        return ExitCode.DONE if is_good else ExitCode.FAILED

    def _feed(self, progress: Progress, task: TaskID) -> None:
        """Write the simulated envelopes; late ones follow when the deadlines of the others have passed."""
        source = self._configuration.ingress.file_directory

        def show_written(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def before_the_late_ones(milliseconds: int) -> None:
            del milliseconds
            self._work_off(progress, task)

        self._summary = simulate(self._plan, source, self._expected, show_written, before_the_late_ones)
        self._work_off(progress, task)

    def _work_off(self, progress: Progress, task: TaskID) -> None:
        """Wait until the service has read all input and no unit waits."""
        source = self._configuration.ingress.file_directory
        lines = sum(_count_lines(file) for file in source.glob("partition-*.jsonl"))
        begun = self._begin()
        progress.update(task, description="putting in order", completed=0, total=lines)
        self._watch(lambda report: self._show_reading(report, lines, progress, task), "reading")
        if begun is not None:
            self._speed = lines / (monotonic() - begun)
        progress.update(task, description="waiting for deadlines")
        self._watch(lambda report: report.units.waiting == 0, "deadlines")

    def _begin(self) -> float | None:
        """Start the service if it is not running; return the instant from which its speed is measured."""
        if self._service is not None:
            return None
        self._service = ServiceProcess(self._arguments, self._directory / "service.log")
        if self._configuration.aggregation.is_enabled:
            self._groups = ServiceProcess(self._arguments, self._directory / "groups.log", ("groups", "run"))
        self._watch(lambda report: report.state == State.READY, "the start")
        return monotonic()

    def _count_groups(self, progress: Progress, task: TaskID) -> None:
        """Wait until all facts are counted. The service has drained, so no more will come."""
        assert self._groups is not None
        facts = CountedFacts(self._configuration)
        progress.update(task, description="counting groups", completed=0, total=facts.size)
        until, before = monotonic() + _STALL_SECONDS, -1
        while monotonic() < until:
            self._groups.check()
            counted = facts.counted()
            progress.update(task, completed=counted)
            if counted >= facts.size:
                return
            if counted != before:
                until, before = monotonic() + _STALL_SECONDS, counted
            sleep(_LOOK_SECONDS)
        raise TookTooLong(f"no facts were counted for {_STALL_SECONDS} s; see {self._directory}/groups.log")

    def _show_reading(self, report: StatusReport, lines: int, progress: Progress, task: TaskID) -> bool:
        records = report.counts.get("records", 0)
        progress.update(task, completed=records)
        return records >= lines

    def _watch(self, is_done: Callable[[StatusReport], bool], what: str) -> None:
        assert self._service is not None
        until, before = monotonic() + _STALL_SECONDS, None
        while monotonic() < until:
            self._service.check()
            report = self._status.find()
            if report is not None and is_done(report):
                return
            if report is not None and (reached := (report.counts.get("records", 0), report.units.waiting)) != before:
                until, before = monotonic() + _STALL_SECONDS, reached
            sleep(_LOOK_SECONDS)
        raise TookTooLong(f"the service made no progress for {_STALL_SECONDS} s with {what}; see {self._directory}/service.log")


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _arguments(config: Path, overrides: list[str]) -> list[str]:
    return ["--config", str(config), "--set", *overrides]


def _program() -> str:
    """Return the program as the user started it, which may not be on PATH."""
    return sys.argv[0] if Path(sys.argv[0]).name == "resequencer" else "resequencer"


def _fresh_directory(seed: int) -> Path:
    """Return run/demo-<seed>. If it exists, a number is appended: no file of an earlier run is changed."""
    names = (f"demo-{seed}" if number == 1 else f"demo-{seed}-{number}" for number in count(1))
    return next(path for path in (Path("run") / name for name in names) if not path.exists())


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)
