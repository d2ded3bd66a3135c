"""`resequencer audit`: proves from the records that the output is complete and right, or names every deviation."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from notification_service.aggregation.settings import PAYMENTS
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.lookup_sources import Job, load_spark_settings
from notification_service.configuration.schema import path_of, settings_from
from notification_service.configuration.sections import Ingress, Notifications, Resequencers, TransportType
from notification_service.configuration.transports import copied_settings, facts_group, kafka_settings, only_with_one_kind
from notification_service.connectors.files.settings import FileSettings
from notification_service.events.pass_through import PASS_THROUGH
from notification_service.events.settings import IPF
from notification_service.jobs.maven import with_kafka
from notification_service.payments.strategies import StrategySettings
from notification_service.supervision.exit_code import ExitCode, NotJudged
from notification_service.supervision.locks import AlreadyRunning, RunLock
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.composition import handler_settings
from notification_service.wiring.working_directory import let_tasks_see_working_directory
from resequencer.clock import Instant
from resequencer.errors import ConfigurationError, ResequencerError, TransientError
from resequencer.printable import counted, printable, without_secrets

if TYPE_CHECKING:
    from notification_service.jobs.audit.groups.sources import GroupDirectories
    from notification_service.jobs.audit.rules import AuditSettings
    from notification_service.jobs.audit.scopes import Scope
    from notification_service.jobs.audit.summary import AuditSubject, AuditSummary

_SHOWN = 20


def audit(arguments: Namespace) -> ExitCode:
    """Exit code 0 only if nothing deviates.

    Raises:
        ConfigurationError: Something named cannot be used, or Spark or its connector is not installed.
        NotJudged: The records are not enough for a judgement, or Spark failed.
        TransientError: Brokers or file system are unavailable.
    """
    configuration = load(arguments.config, arguments.overrides)
    refusal = only_with_one_kind(configuration, "audit")
    if refusal is not None:
        raise refusal
    if arguments.archive and configuration.ingress.transport is TransportType.FILE:
        problem = "file: --archive reads archived topics; the archive of files is always read"
        raise ConfigurationError(path_of(Ingress, "transport"), problem)
    if configuration.resequencer.strategy == "WINDOW" and configuration.notification.handler != PASS_THROUGH:
        problem = "is WINDOW: what its messages hold depends on when the events came, and the records do not show it; use verify"
        raise ConfigurationError(path_of(Resequencers, "strategy"), problem)
    if find_spec("pyspark") is None:
        raise ConfigurationError("pyspark", "is not installed; install it by `make audit`, or pip install '.[pipeline]'")
    let_tasks_see_working_directory()
    target = arguments.output or configuration.notification.run_directory / "audit"
    with _translated(), _alone(target):
        summary = _run(configuration, target, arguments.master, is_archive=arguments.archive)
    if arguments.json:
        from notification_service.jobs.audit.summary import as_json

        sys.stdout.write(as_json(summary).decode())
    else:
        _print(summary, target)
    return ExitCode.DONE if summary.is_good else ExitCode.FAILED


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="directory for tables, summary.json and page.html (default: <run-directory>/audit)",
    )
    parser.add_argument("--archive", action="store_true", help="read the archive of `archive-topics` instead of the topics")
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: that of the lookups, local[*])")


def _run(configuration: Configuration, target: Path, master: str | None, *, is_archive: bool) -> "AuditSummary":
    """Run the audit. The jobs are imported here, because Spark takes a second to import and the service never needs it."""
    from notification_service.jobs.audit.counting import summarize
    from notification_service.jobs.audit.job import PAGE, SUMMARY, audit_records, begin_results, publish_results
    from notification_service.jobs.audit.page import write_page
    from notification_service.jobs.audit.summary import write_summary
    from notification_service.jobs.spark.session import spark_session

    clock = SystemClock()
    building, began_at = begin_results(target), clock.now()
    settings = load_spark_settings(configuration, Job.AUDIT)
    is_on_files = configuration.ingress.transport is TransportType.FILE
    options = settings.options if is_on_files else with_kafka(settings.options)
    sys.stderr.write(f"Starting Spark ({master or settings.master})\n")
    with spark_session(master or settings.master, options, settings.application) as spark:
        scope = _scope(spark, configuration, is_archive=is_archive)
        sys.stderr.write(f"Auditing {scope.size / 1e6:,.1f} MB\n")
        summary = summarize(audit_records(spark, scope, audit_settings(configuration, dict(scope.settled)), building))
    write_summary(summary, building / SUMMARY)
    subject = audit_subject(configuration, began_at, max(0, clock.now() - began_at), is_archive=is_archive)
    write_page(summary, subject, building / PAGE)
    publish_results(target)
    return summary


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Hold the lock of the output directory."""
    lock = RunLock(target, "audit")
    try:
        lock.acquire()
    except AlreadyRunning as error:
        raise NotJudged(f"{target}: another audit writes to it; wait until that has ended, or choose another --output") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors that stop the audit into NotJudged, except for those with an exit code of their own."""
    from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of

    try:
        yield
    except (ConfigurationError, TransientError):
        raise
    except ResequencerError as error:
        raise NotJudged(str(error)) from error
    except SPARK_ERRORS as error:
        raise NotJudged(f"Spark failed: {cause_of(error)}") from error
    except OSError as error:
        raise NotJudged(f"{error.filename or 'the file system'}: {error.strerror or error}") from error


def _scope(spark: Any, configuration: Configuration, *, is_archive: bool) -> "Scope":
    ingress, notification = configuration.ingress, configuration.notification
    if ingress.transport is TransportType.FILE:
        from notification_service.jobs.audit.scopes import files_scope

        settings = FileSettings(ingress.topic, ingress.file_directory, notification.output_directory)
        orders = configuration.orders.directory if configuration.orders.is_enabled else None
        return files_scope(spark, settings, ingress.archive_directory, orders, _group_directories(configuration))
    from notification_service.jobs.audit.scopes import archive_scope, topics_scope

    kafka = copied_settings(configuration)
    if notification.handler == PASS_THROUGH:
        kafka = kafka.without_facts()
    if is_archive:
        return archive_scope(spark, configuration.archive.location, kafka.topics)
    return topics_scope(spark, kafka, StopSignal().wait, facts_group(configuration))


def _group_directories(configuration: Configuration) -> "GroupDirectories | None":
    from notification_service.jobs.audit.groups.sources import GroupDirectories

    aggregation = configuration.aggregation
    if not configuration.counts_payments:
        return None
    return GroupDirectories(aggregation.facts_directory, aggregation.directory / PAYMENTS)


def audit_settings(configuration: Configuration, settled: dict[int, int]) -> "AuditSettings":
    """Return the service's configuration as the tasks get it; `settled` is how far each partition is settled."""
    from notification_service.jobs.audit.rules import AuditSettings

    notification = configuration.notification
    passes_through = notification.handler == PASS_THROUGH
    try:
        has_table = configuration.ingress.events.format == IPF and not passes_through
        table = "" if not has_table else notification.settings.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            path_of(Notifications, "settings"), f"{notification.settings} cannot be read: {error}"
        ) from error
    return AuditSettings(
        settings_from(StrategySettings, configuration.resequencer),
        handler_settings(configuration),
        configuration.resequencer,
        table,
        str(configuration.lookups.directory.absolute()),
        configuration.ingress.topic,
        configuration.ingress.max_record_bytes,
        settled,
        final_statuses=configuration.aggregation.final_statuses,
        events=configuration.ingress.events,
        passes_through=passes_through,
        backlog_wait_ms=configuration.orders.backlog_wait_ms,
    )


def audit_subject(configuration: Configuration, began_at: Instant, took_ms: int, *, is_archive: bool) -> "AuditSubject":
    """Return what the page says about the audit itself."""
    from notification_service.jobs.audit.summary import AuditSubject

    ingress, notification, waits = configuration.ingress, configuration.notification, configuration.resequencer
    if ingress.transport is TransportType.FILE:
        source, out, group = f"files in {ingress.file_directory}", notification.output_directory, None
        notifications, dead_letters = str(out / "notifications.jsonl"), str(out / "dead-letters.jsonl")
    else:
        kafka = kafka_settings(configuration)
        source, group = f"topic {kafka.topics.input}", kafka.group_id
        notifications, dead_letters = f"topic {kafka.topics.notifications}", f"topic {kafka.topics.dead_letters}"
    aggregation = configuration.aggregation
    is_on_files = ingress.transport is TransportType.FILE
    reports = str(aggregation.directory / PAYMENTS / "completions.jsonl") if is_on_files else f"topic {aggregation.reports_topic}"
    return AuditSubject(
        str(notification.run_directory),
        source,
        notifications,
        dead_letters,
        without_secrets(configuration.archive.location) if is_archive else None,
        group,
        configuration.resequencer.strategy,
        waits.shortest_deadline_ms,
        waits.longest_deadline_ms,
        began_at,
        took_ms,
        reports if configuration.counts_payments else None,
        has_lookups=notification.handler != PASS_THROUGH,
    )


def _print(summary: "AuditSummary", target: Path) -> None:
    console = Console()
    console.print(
        f"{counted(summary.notifications, 'notification')} of {counted(summary.units, 'unit')} compared with "
        f"{counted(summary.arrivals, 'envelope')}; "
        f"{summary.incomplete:,} marked incomplete, {summary.late:,} marked late, {summary.open:,} open",
        soft_wrap=True,
    )
    if summary.orders.given:
        orders = summary.orders
        console.print(
            f"{counted(orders.given, 'order')}: {orders.done:,} done, {orders.refused:,} refused, "
            f"{orders.lost_by_heal:,} lost by the storage, {orders.without_outcome:,} without an outcome",
            soft_wrap=True,
        )
    if summary.groups.groups:
        groups = summary.groups
        console.print(
            f"{counted(groups.groups, 'group')} of {counted(groups.payments, 'payment')} with "
            f"{counted(groups.reports, 'report')}: {groups.complete:,} complete, {groups.incomplete:,} incomplete, "
            f"{groups.closed:,} closed, {groups.open:,} open",
            soft_wrap=True,
        )
    if summary.not_compared:
        console.print(
            f"The content of {summary.not_compared:,} was not compared: it has your own target type or handler, or its lookups "
            "were removed",
            soft_wrap=True,
        )
    if summary.is_good:
        console.print("Nothing is lost, doubled or out of order; the content is as expected")
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
        line = f"{each.deviation}: {each.unit or 'no unit'}{place}: {each.what}"
        console.print(printable(line), soft_wrap=True, markup=False)
