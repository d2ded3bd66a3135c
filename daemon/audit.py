"""`resequencer audit`: proves from the records that what was let out is what had to be, or names every deviation."""

import os
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from connectors.file_settings import FileSettings
from daemon.composition import resequencer_settings
from daemon.configuration import Configuration, load
from daemon.exit_code import ExitCode
from daemon.keys import INGRESS
from daemon.lookup_sources import load_spark_settings
from daemon.sections import TransportType
from domain.errors import ConfigurationError
from resequencer.handlers.settings import HandlerSettings
from resequencer.strategies.registry import StrategySettings

if TYPE_CHECKING:
    from pipeline.audit.rules import AuditSettings
    from pipeline.audit.summary import AuditSummary

_SHOWN = 20


def audit(arguments: Namespace) -> ExitCode:
    """Exit code 0 only if nothing deviates.

    Raises:
        ConfigurationError: The transport is not the files, something named cannot be used, or Spark is not installed.
        AuditRefused: What is there is not enough to judge by.
    """
    configuration = load(arguments.config, arguments.overrides)
    if configuration.ingress.transport is not TransportType.FILE:
        raise ConfigurationError(f"{INGRESS}.transport", f"{configuration.ingress.transport}: `audit` reads files")
    if find_spec("pyspark") is None:
        raise ConfigurationError("pyspark", "is not installed; `make audit` does it, or pip install '.[pipeline]'")
    _let_tasks_see_working_directory()
    target = arguments.output or configuration.notification.run_directory / "audit"
    summary = _run(configuration, target, arguments.master)
    if arguments.json:
        from pipeline.audit.summary import as_json

        sys.stdout.write(as_json(summary).decode())
    else:
        _print(summary, target)
    return ExitCode.DONE if summary.is_good else ExitCode.NOT_SO


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where tables, summary.json and page.html go; default: <run-directory>/audit"
    )
    parser.add_argument("--master", metavar="URL", help="of Spark; default: as for the lookups, local[*]")


def _run(configuration: Configuration, target: Path, master: str | None) -> "AuditSummary":
    """Here are the imports of the jobs, for Spark takes a second to import and the service never needs it."""
    from pipeline.audit.counting import summarize
    from pipeline.audit.job import audit_files
    from pipeline.audit.lines import find_scope
    from pipeline.audit.page import write_page
    from pipeline.audit.summary import write_summary
    from pipeline.session import spark_session

    ingress = configuration.ingress
    settings = FileSettings(ingress.topic, ingress.file_directory, configuration.notification.output_directory)
    scope = find_scope(settings, ingress.archive_directory)
    target.mkdir(parents=True, exist_ok=True)
    spark_settings = load_spark_settings(configuration)
    sys.stderr.write(f"Starting Spark ({master or spark_settings.master})\n")
    with spark_session(master or spark_settings.master, spark_settings.options) as spark:
        sys.stderr.write(f"Reading and judging {scope.size:,} bytes\n")
        result = audit_files(spark, scope, _settings(configuration, scope.settled), target)
        summary = summarize(result)
    write_summary(summary, target / "summary.json")
    write_page(summary, str(configuration.notification.run_directory), target / "page.html")
    return summary


def _settings(configuration: Configuration, settled: dict[int, int]) -> "AuditSettings":
    from pipeline.audit.rules import AuditSettings

    resequencer, notification = configuration.resequencer, configuration.notification
    try:
        table = notification.settings.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "payment-status-notification.settings", f"{notification.settings} cannot be read: {error}"
        ) from error
    return AuditSettings(
        StrategySettings(resequencer.strategy, resequencer.custom_data_keys, resequencer.pds_data_keys),
        HandlerSettings(notification.target_type, resequencer.custom_data_keys, resequencer.pds_data_keys),
        resequencer_settings(configuration),
        table,
        str(configuration.lookups.directory.absolute()),
        configuration.ingress.topic,
        configuration.ingress.max_record_bytes,
        settled,
    )


def _let_tasks_see_working_directory() -> None:
    """A user's own strategy is looked for there, by the tasks too."""
    seen = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(seen)
    sys.path.append(os.getcwd())


def _print(summary: "AuditSummary", target: Path) -> None:
    console = Console()
    console.print(
        f"{summary.notifications:,} notifications of {summary.units:,} units compared with {summary.arrivals:,} envelopes; "
        f"{summary.incomplete:,} marked incomplete, {summary.late:,} late, {summary.open:,} open",
        soft_wrap=True,
    )
    if summary.not_compared:
        console.print(
            f"The content of {summary.not_compared:,} was not compared: a target type of your own, or lookups that are removed",
            soft_wrap=True,
        )
    if summary.is_good:
        console.print("Nothing lost, nothing doubled, nothing out of order, content as expected")
    else:
        _print_findings(summary, console)
    console.print(f"The page: {target / 'page.html'}", soft_wrap=True)


def _print_findings(summary: "AuditSummary", console: Console) -> None:
    counts = Table("deviation", "found")
    for deviation, count in summary.counts.items():
        if count:
            counts.add_row(deviation, f"{count:,}")
    console.print(counts)
    for each in summary.examples[:_SHOWN]:
        place = "" if each.offset is None else f" at {each.partition}@{each.offset}"
        console.print(f"{each.deviation}: {each.unit or 'no unit'}{place}: {each.what}", soft_wrap=True, markup=False)
