"""`resequencer simulate`: envelopes of simulated payment flows into the configured source."""

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from secrets import randbelow
from time import sleep

import msgspec
from rich.console import Console
from rich.progress import Progress

from daemon.composition import resequencer_settings
from daemon.configuration import Configuration, load
from daemon.exit_code import ExitCode
from domain.errors import ConfigurationError
from simulator.arguments import plan_from
from simulator.simulation import Summary
from simulator.simulation import simulate as run_simulation

_SEEDS = 1_000_000


def simulate(arguments: Namespace) -> ExitCode:
    """Write what the arguments ask for, late lines included, and print what was written."""
    configuration = load(arguments.config, arguments.overrides)
    unsupported = configuration.unsupported()
    if unsupported is not None:
        raise unsupported
    deadline_ms = resequencer_settings(configuration).deadline_ms
    try:
        plan = plan_from(arguments, drawn_seed=draw_seed(), deadline_ms=deadline_ms)
    except ValueError as error:
        raise ConfigurationError("simulate", str(error)) from error
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"units of seed {plan.seed}", total=plan.units)
        summary = run_simulation(
            plan,
            configuration.ingress.file_directory,
            expected_file(arguments.expected, configuration),
            lambda done, total: progress.update(task, completed=done, total=total),
            partial(_pause, progress),
        )
    sys.stdout.write(_told(summary, as_json=arguments.json))
    return ExitCode.DONE


def draw_seed() -> int:
    """A new seed: short enough to be typed again."""
    return randbelow(_SEEDS)


def expected_file(given: Path | None, configuration: Configuration) -> Path:
    """Where expectations are: where the arguments say, else beside the input directory."""
    return given or configuration.ingress.file_directory.parent / "expected.jsonl"


def _pause(progress: Progress, milliseconds: int) -> None:
    progress.console.print(f"late ones follow after {milliseconds / 1_000:g} s")
    sleep(milliseconds / 1_000)


def _told(summary: Summary, *, as_json: bool) -> str:
    if as_json:
        return msgspec.json.encode(summary).decode() + "\n"
    return (
        f"seed {summary.seed}: {summary.lines} lines of {summary.units} units: {summary.envelopes} envelopes, "
        f"{summary.out_of_order} out of order, {summary.duplicates} doubled, {summary.lost} lost, {summary.late} late, "
        f"{summary.garbage} lines of garbage; {summary.notifications} notifications expected\n"
    )
