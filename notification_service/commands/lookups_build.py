"""`resequencer lookups build`: starts the Spark job and prints what it read, refused and published."""

import sys
from argparse import Namespace
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.lookup_sources import load_job_settings
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.working_directory import let_tasks_see_working_directory
from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from notification_service.jobs.lookups.job import Built


def build(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Exit code 0 if a version was published.

    Raises:
        ConfigurationError: The sources are not described, or Spark is not installed.
        JobRefused, PublishingRefused: Nothing was published.
    """
    settings = load_job_settings(configuration)
    if find_spec("pyspark") is None:
        raise ConfigurationError("pyspark", "is not installed; install it by `make lookups`, or pip install '.[pipeline]'")
    from notification_service.jobs.lookups.job import STEPS, build_lookups  # Imported here: Spark takes a second to import.
    from notification_service.jobs.lookups.specs import find_specs
    from notification_service.jobs.spark.session import spark_session

    let_tasks_see_working_directory()
    find_specs(settings.specs)  # Refuse a wrong configuration before Spark is started.
    steps = len(STEPS) * sum(1 for sources in settings.sources.values() if sources)
    with _progress() as progress:
        bar = progress.add_task("starting Spark", total=steps + 1)

        def tell(step: str) -> None:
            progress.update(bar, advance=1, description=step)
            if not progress.console.is_terminal:
                progress.console.print(step)

        with spark_session(arguments.master or settings.master, settings.spark, settings.application) as spark:
            built = build_lookups(spark, settings, SystemClock().now(), version("resequencer"), tell)
        progress.update(bar, completed=steps + 1, description="published")
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(built)).decode() + "\n")
    else:
        _print(built)
    return ExitCode.DONE


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _print(built: "Built") -> None:
    console = Console()
    table = Table("lookup", "source")
    for name in ("read", "refused", "keys"):
        table.add_column(name, justify="right")
    for lookup in built.lookups:
        for number, source in enumerate(lookup.sources):
            told = (lookup.name, f"{lookup.keys:,}") if number == 0 else ("", "")
            table.add_row(told[0], source.place, f"{source.rows_read:,}", f"{source.rows_refused:,}", told[1])
    console.print(table)
    for source in (source for lookup in built.lookups for source in lookup.sources if source.remark is not None):
        console.print(f"{source.place}: {source.remark}", soft_wrap=True)
    for lookup in built.lookups:
        if lookup.doubled or lookup.contradictory:
            console.print(f"{lookup.name}: {lookup.doubled:,} older or doubled rows, {lookup.contradictory:,} contradictory keys")
    if built.quarantine is not None:
        console.print(f"What was refused is in {built.quarantine}", soft_wrap=True)
    console.print(f"Published {built.version}", soft_wrap=True)
