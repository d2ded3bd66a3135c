"""`resequencer archive-topics`: what the topics hold goes to Parquet, each record once; small files become large ones."""

import json
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.lookup_sources import Job, load_spark_settings
from notification_service.configuration.schema import path_of, settings_from
from notification_service.configuration.sections import Ingress, RecordsArchive, TransportType
from notification_service.configuration.transports import copied_settings, facts_group, only_with_one_kind
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import AlreadyRunning, RunLock
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock
from resequencer.errors import ConfigurationError, ResequencerError, TransientError
from resequencer.printable import without_secrets

if TYPE_CHECKING:
    from notification_service.jobs.topic_archive.streaming import Archiver
    from notification_service.jobs.topic_archive.writer import ArchiveSettings

_AGAIN_MS = 5_000


class ArchiveInUse(ResequencerError):
    """Another process archives into it or compacts it."""

    def __init__(self, location: str, what: str) -> None:
        super().__init__(f"{location}: another process {what}; wait until it has ended, or stop it")


def archive_topics(arguments: Namespace) -> ExitCode:
    """Archive or compact topics. Exit code 0: all that was there is done; with --continuous, a stop was requested.

    Raises:
        ConfigurationError: The transport is not Kafka, or Spark or its connector is not installed.
        TransientError: Brokers or file system are unavailable; with --continuous the command waits for them instead.
        ResequencerError: Another process does the same, or a person must act.
    """
    configuration = load(arguments.config, arguments.overrides)
    refusal = only_with_one_kind(configuration, "archive-topics")
    if refusal is not None:
        raise refusal
    if configuration.ingress.transport is not TransportType.KAFKA:
        problem = f"{configuration.ingress.transport}: `archive-topics` copies Kafka topics; for files, use `archive`"
        raise ConfigurationError(path_of(Ingress, "transport"), problem)
    if find_spec("pyspark") is None:
        raise ConfigurationError("pyspark", "is not installed; install it by `make archive-topics`, or pip install '.[pipeline]'")
    location, stop = arguments.output or configuration.archive.location, StopSignal()
    with ExitStack() as held:
        _lock(held, location, is_compacting=arguments.compact)
        spark = held.enter_context(_spark(configuration, arguments.master))
        stop.install()
        if arguments.compact:
            return _compact(spark, location, as_json=arguments.json)
        archiver = _archiver(spark, configuration, location, stop)
        held.callback(archiver.close)
        if arguments.continuous:
            _go_on(archiver, stop)
        else:
            archiver.run(_ignore if arguments.json else _tell, lambda: stop.is_set, is_continuous=False)
        _report(archiver, location, as_json=arguments.json)
    return ExitCode.DONE


def add_arguments(parser: ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--continuous", action="store_true", help="continue until SIGTERM (default: end when everything is archived)"
    )
    mode.add_argument(
        "--compact", action="store_true", help="merge small files into large ones, also while another process archives"
    )
    parser.add_argument("--output", metavar="URL", help=f"the archive; default: {path_of(RecordsArchive, 'location')}")
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: that of the lookups, local[*])")


def _lock(held: ExitStack, location: str, *, is_compacting: bool) -> None:
    """Lock the archive, if it is on a file system of this machine. On others, a second archiver is refused when it publishes a
    batch.
    """
    if "://" in location:
        return
    lock = RunLock(Path(location), "compacting" if is_compacting else "archiving")
    try:
        lock.acquire()
    except AlreadyRunning as error:
        raise ArchiveInUse(location, "compacts it" if is_compacting else "archives into it") from error
    held.callback(lock.release)


def _spark(configuration: Configuration, master: str | None) -> Any:
    from notification_service.jobs.maven import with_kafka
    from notification_service.jobs.spark.session import spark_session

    settings = load_spark_settings(configuration, Job.ARCHIVE_TOPICS)
    options = with_kafka(settings.options)
    sys.stderr.write(f"Starting Spark ({master or settings.master})\n")
    return spark_session(master or settings.master, options, settings.application)


def _archiver(spark: Any, configuration: Configuration, location: str, stop: StopSignal) -> "Archiver":
    from notification_service.jobs.topic_archive.streaming import Archiver

    kafka = copied_settings(configuration)
    return Archiver(spark, _settings(configuration, location), kafka, SystemClock(), stop.wait)


def _settings(configuration: Configuration, location: str) -> "ArchiveSettings":
    from notification_service.jobs.spark.session import java_options
    from notification_service.jobs.topic_archive.writer import ArchiveSettings

    kafka = copied_settings(configuration)
    client = java_options(kafka.consumer)
    of_groups = {"facts_group": facts_group(configuration)}
    return settings_from(
        ArchiveSettings, configuration.archive, location=location, topics=kafka.topics.all, client=client, **of_groups
    )


def _go_on(archiver: "Archiver", stop: StopSignal) -> None:
    """Archive until stopped, and wait for unavailable servers. An outage is reported once, and again after a success."""
    reported: tuple[str, int] | None = None
    while not stop.is_set:
        try:
            archiver.run(_tell, lambda: stop.is_set, is_continuous=True)
        except TransientError as error:
            failed = str(error), archiver.records
            if failed != reported:
                _tell(f"waiting: {error}")
            reported = failed
            stop.wait(_AGAIN_MS)


def _compact(spark: Any, location: str, *, as_json: bool) -> ExitCode:
    from notification_service.jobs.topic_archive.compaction import Compactor

    done = Compactor(spark, location, SystemClock()).compact(_ignore if as_json else _tell)
    if as_json:
        sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
    else:
        _tell(f"{done.replaced:,} batches became {len(done.made):,}; {len(done.removed):,} replaced ones were removed")
    return ExitCode.DONE


def _report(archiver: "Archiver", location: str, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(
            json.dumps({"archive": without_secrets(location), "records": archiver.records, "ends": archiver.ends}) + "\n"
        )
        return
    for topic, ends in sorted(archiver.ends.items()):
        archived = ", ".join(f"{number}: {end}" for number, end in sorted(ends.items()))
        sys.stdout.write(f"{topic}: archived up to {archived}\n")
    _tell(f"new records: {archiver.records:,}; archive: {location}")


def _ignore(line: str) -> None:
    del line


def _tell(line: str) -> None:
    sys.stdout.write(without_secrets(line) + "\n")
    sys.stdout.flush()
