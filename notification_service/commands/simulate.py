"""`resequencer simulate`: writes envelopes of simulated payment flows, or orders of a shop, into the configured input."""

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from secrets import randbelow
from time import monotonic_ns, sleep

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from guardian.backoff import BackoffSettings, RetryWithBackoff
from notification_service.commands.command import say
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Resequencers, TransportType
from notification_service.configuration.transports import jms_source_settings, kafka_source_settings, sinks_of
from notification_service.events.settings import CLOUDEVENTS, FORMAT_KEY, IPF
from notification_service.simulator.arguments import Judge, plan_from
from notification_service.simulator.generate.input import Input, InputFiles
from notification_service.simulator.generate.plan import Events, Plan
from notification_service.simulator.generate.simulation import Pacer, Summary, simulate_into
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.regions import subscribe_for_verify
from resequencer.errors import ConfigurationError

_SEEDS = 1_000_000


def simulate(arguments: Namespace) -> ExitCode:
    """Write what the arguments ask for, late lines included, and print what was written."""
    configuration = load(arguments.config, arguments.overrides)
    judge = Judge(configuration.resequencer.longest_deadline_ms, configuration.ingress.max_record_bytes)
    try:
        plan = plan_from(arguments, drawn_seed=draw_seed(), judge=judge, events=simulated_events(configuration))
    except ValueError as error:
        raise ConfigurationError("simulate", str(error)) from error
    if configuration.ingress.transport is not TransportType.FILE:
        # Brokers refuse such a large record by default.
        plan = msgspec.structs.replace(plan, max_value_bytes=None)
    if configuration.bridge.is_enabled and (plan.garbage or plan.conflicts):
        # The bridge gives the lines their offsets, by which dead letters are expected.
        plan = msgspec.structs.replace(plan, garbage=0, conflicts=0)
        sys.stderr.write(
            "resequencer: without garbage and contradictions: what becomes of them behind a bridge is not expected\n"
        )
    pacer = Pacer(steady_ms, pause)
    new_retry().until_answered("output", lambda: subscribe_for_verify(configuration))
    try:
        summary = _write(plan, pacer, configuration, expected_file(arguments.expected, configuration))
    except KeyboardInterrupt:
        say("interrupted; the input has lines that are not expected, so verify will report them")
        return ExitCode.FAILED
    sys.stdout.write(_summary_text(summary, pacer.rate, as_json=arguments.json))
    return ExitCode.DONE


def simulated_events(configuration: Configuration) -> Events:
    """Return what the simulator writes for the service: what its format of events reads.

    Raises:
        ConfigurationError: The simulator has nothing for it.
    """
    name = configuration.ingress.events.format
    if name == IPF:
        return Events.PAYMENTS
    if name != CLOUDEVENTS:
        raise ConfigurationError(FORMAT_KEY, f"is {name}: simulate writes payments (ipf) and orders of a shop (cloudevents)")
    transports = {configuration.ingress.transport, *sinks_of(configuration)}
    if configuration.bridge.is_enabled or not transports <= {TransportType.FILE, TransportType.KAFKA}:
        raise ConfigurationError(FORMAT_KEY, "is cloudevents: simulate writes them to files and to Kafka, without a bridge")
    if configuration.resequencer.first_sequence != 1:
        raise ConfigurationError(path_of(Resequencers, "first_sequence"), "is not 1: simulated numbers begin with 1")
    return Events.SHOP


def draw_seed() -> int:
    """Draw a new seed, short enough to be typed."""
    return randbelow(_SEEDS)


def expected_file(given: Path | None, configuration: Configuration) -> Path:
    """Return the path of the expectations: from the arguments, or else beside the input directory."""
    return given or configuration.ingress.file_directory.parent / "expected.jsonl"


def steady_ms() -> int:
    """Return milliseconds of a clock that never goes back, even if the wall clock is changed."""
    return monotonic_ns() // 1_000_000


def pause(milliseconds: int) -> None:
    sleep(milliseconds / 1_000)


def new_retry() -> RetryWithBackoff:
    """Make the retry of commands that wait until servers are back, or until Ctrl-C. An outage is reported on stderr."""
    return RetryWithBackoff(BackoffSettings(), pause, lambda: False)


def _open_input(plan: Plan, configuration: Configuration, expected: Path) -> Input:
    if configuration.bridge.is_enabled:
        from notification_service.wiring.bridge import open_bridged_input

        return open_bridged_input(configuration, new_retry())
    if configuration.ingress.transport is TransportType.FILE:
        return InputFiles(configuration.ingress.file_directory, plan.partitions)
    if configuration.ingress.transport is TransportType.JMS:
        from notification_service.simulator.generate.jms_input import JmsInput  # Imported here: its client may not be installed.

        return JmsInput(jms_source_settings(configuration), expected.with_suffix(".sent.json"), new_retry())
    from notification_service.simulator.generate.kafka_input import (
        KafkaInput,  # Imported here: the client takes a third of a second.
    )

    return KafkaInput(kafka_source_settings(configuration), new_retry())


def _write(plan: Plan, pacer: Pacer, configuration: Configuration, expected: Path) -> Summary:
    console = Console(stderr=True)
    with _progress(console) as progress:
        task = progress.add_task(f"units of seed {plan.seed}", total=plan.units, rate="")

        def show_written(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, rate=f"{pacer.rate:,.0f} lines/s")

        pause_for_late_ones = partial(_pause_for_late_ones, progress)
        return simulate_into(
            lambda: _open_input(plan, configuration, expected), plan, expected, show_written, pause_for_late_ones, pacer
        )


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _pause_for_late_ones(progress: Progress, milliseconds: int) -> None:
    progress.console.print(f"late envelopes follow after {milliseconds / 1_000:g} s")
    pause(milliseconds)


def _summary_text(summary: Summary, rate: float, *, as_json: bool) -> str:
    if as_json:
        return msgspec.json.encode(msgspec.structs.asdict(summary) | {"lines_per_second": round(rate)}).decode() + "\n"
    return (
        f"seed {summary.seed}: {summary.lines} lines of {summary.units} units: {summary.envelopes} envelopes, "
        f"{summary.out_of_order} out of order, {summary.duplicates} doubled, {summary.conflicts} contradicted, "
        f"{summary.lost} lost, {summary.late} late, {summary.garbage} lines of garbage; "
        f"{summary.notifications} notifications expected; {rate:,.0f} lines/s\n"
    )
