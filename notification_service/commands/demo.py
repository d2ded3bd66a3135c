"""`resequencer demo`: the main job, start to end, on the embedded default."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from itertools import count
from pathlib import Path
from signal import SIGTERM, default_int_handler, signal
from time import monotonic, sleep

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from notification_service.commands.demo_delivery import deliver
from notification_service.commands.demo_report import (
    CountedFacts,
    show_console,
    show_groups,
    show_report,
    show_story,
    show_table,
    show_verdict,
)
from notification_service.commands.simulate import draw_seed
from notification_service.commands.verify import make_groups_check, refuse_foreign_handler, verify_output
from notification_service.configuration.configuration import Configuration, load
from notification_service.simulator import arguments as argument_types
from notification_service.simulator.generate.plan import SAMPLES, Plan
from notification_service.simulator.generate.simulation import Summary, simulate
from notification_service.status.file import StatusFile
from notification_service.status.report import State, StatusReport
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.service_process import ServiceProcess
from resequencer.errors import ResequencerError

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
    "payment-status-notification.aggregation.enabled=true",
    "payment-status-notification.aggregation.directory=null",
    "payment-status-notification.aggregation.facts.directory=null",
)
"""Overrides of the demo: simulated payments must not get among real ones, whatever the configuration says."""


class TookTooLong(ResequencerError):
    """The service made no progress; the text says with what."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--units", type=argument_types.positive, default=_UNITS, help="payments (default: %(default)s)")
    parser.add_argument(
        "--seed",
        type=argument_types.count,
        help="the same seed makes the same envelopes (default: a random one, which is printed)",
    )
    parser.add_argument(
        "--delivery", action="store_true", help="then deliver the notifications to a receiver that sleeps, forgets and refuses"
    )
    parser.add_argument(
        "--pain001", type=Path, nargs="+", default=list(SAMPLES), metavar="FILE", help="default: the samples of the project"
    )


def demo(arguments: Namespace) -> ExitCode:
    """Run the demo. All files are under run/demo-<seed>/ afterwards. Exit code 0 only if this run kept every promise."""
    seed = draw_seed() if arguments.seed is None else arguments.seed
    run_directory = _fresh_directory(seed)
    overrides = [
        *arguments.overrides,
        *_ALL_IN_THE_RUN_DIRECTORY,
        f'payment-status-notification.run-directory="{run_directory}"',
        f"payment-status-notification.resequencer.stash-timeout={_STASH_TIMEOUT}",
    ]
    configuration = load(arguments.config, overrides)
    refuse_foreign_handler(configuration)
    # The service must be stopped on SIGTERM, too.
    signal(SIGTERM, default_int_handler)
    plan = Plan(arguments.units, seed, pain001=tuple(arguments.pain001), late_after_ms=0)
    console = Console()
    console.print(f"{plan.units} payments from {len(plan.pain001)} pain.001 files, seed {seed}; all files in {run_directory}/")
    service = _arguments(arguments.config, overrides)
    run = _Run(configuration, plan, service, console)
    code = run.show() if run.play() else ExitCode.NOT_SO
    if arguments.delivery and code is ExitCode.DONE:
        with _progress(console) as progress:
            delivered = deliver(arguments.config, overrides, run_directory, progress)
        delivered.show(console)
        code = ExitCode.DONE if delivered.is_good else ExitCode.NOT_SO
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
        assert check is not None, "the demo counts groups"
        verdict = verify_output(self._configuration, self._expected, check=check)
        show_groups(self._console, check)
        show_verdict(self._console, verdict)
        does_agree = show_story(self._console, self._configuration, self._expected)
        show_report(self._console, self._configuration)
        # No deadline of a group can have passed.
        is_good = verdict.is_good and does_agree and not check.counts().incomplete
        return ExitCode.DONE if is_good else ExitCode.NOT_SO

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
