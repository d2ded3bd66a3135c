"""Makes ledger, feeds and delivery workers from the configuration."""

import ipaddress
import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from connectors.files.operations import SystemFiles
from connectors.port import Channel
from daemon.configuration.configuration import Configuration
from daemon.configuration.schema import path_of
from daemon.configuration.sections import TransportType
from daemon.system_clock import SystemClock
from delivery.event_file import EventFile
from delivery.feeds.files import FileFeed, given_files, output_files
from delivery.feeds.port import Feed
from delivery.jobs import GateReport
from delivery.ledger.database import Database
from delivery.ledger.ledger import Ledger
from delivery.settings import DeliverySettings, Receiver
from delivery.source_reader import Sources
from delivery.worker import DeliveryWorker, Reporting
from domain.clock import Clock, Instant, instant_text
from domain.errors import ConfigurationError
from status.delivery import DeliveryFile, DeliveryReport, GateStatus

_FILES = "files:"
_LIVE = "live"
_SEPARATOR = "\n"


def make_ledger(configuration: Configuration) -> Ledger:
    """Return the ledger, which connects at its first use.

    Raises:
        ConfigurationError: No receiver is configured.
    """
    delivery = configuration.delivery
    if not delivery.receivers:
        raise ConfigurationError(path_of(DeliverySettings, "receivers"), "is empty: name a receiver, and give its url")
    settings = delivery.ledger
    url = f"sqlite:///{settings.file.absolute()}" if settings.url is None else str(settings.url)
    return Ledger(Database(url), delivery.receivers, settings.retention_ms, delivery.worker.stalled_after_ms)


def make_worker(configuration: Configuration, ledger: Ledger, slot: int | None) -> DeliveryWorker:
    """Return a delivery worker. Its name in the ledger tells machine and process. In a slot of a service it reports to `status`.

    Raises:
        ConfigurationError: A receiver is live with transport kafka.
    """
    delivery = configuration.delivery
    live = [name for name, each in delivery.receivers if each.is_live]
    if live and configuration.notification.transport is not TransportType.FILE:
        raise ConfigurationError(
            f"{path_of(DeliverySettings, 'receivers')}.{live[0]}.live",
            "is true, which needs transport = file: set it to false, and start jobs",
        )
    owner = f"{socket.gethostname()}:{os.getpid()}"
    events = EventFile(configuration.notification.output_directory / "job-events.jsonl")
    forbidden = [ipaddress.ip_network(each) for each in delivery.forbidden_addresses]
    sources = Sources(_LIVE, partial(open_feed, configuration))
    publish = partial(events.publish, ledger.events_after)
    report: Reporting = _report_nothing
    if slot is not None:
        report = partial(_report, DeliveryFile(configuration.notification.run_directory, slot), slot, SystemClock())
    return DeliveryWorker(ledger, delivery.worker, owner, sources, publish, report, forbidden)


def _report_nothing(problem: str | None, gates: Sequence[GateReport]) -> None:
    del problem, gates


def _report(file: DeliveryFile, slot: int, clock: Clock, problem: str | None, gates: Sequence[GateReport]) -> None:
    told = tuple(
        GateStatus(each.receiver, each.is_open, each.waiting) if each.is_open else
        GateStatus(each.receiver, each.is_open, each.waiting, each.reason, _text(each.since), _text(each.probe_at))
        for each in gates
    )  # fmt: skip
    file.write(DeliveryReport(os.getppid(), os.getpid(), slot, instant_text(clock.now()), problem, told))


def _text(instant: Instant | None) -> str | None:
    return None if instant is None else instant_text(instant)


def source_of_files(paths: list[Path]) -> str:
    """Return the source of a job that delivers what these files hold."""
    return _FILES + _SEPARATOR.join(str(path.absolute()) for path in paths)


def open_feed(configuration: Configuration, source: str, receiver: Receiver) -> Feed:
    """Return the feed of a job's source."""
    operations = SystemFiles()
    if source.startswith(_FILES):
        paths = [Path(each) for each in source.removeprefix(_FILES).split(_SEPARATOR)]
        return FileFeed(partial(given_files, paths), operations, receiver.select, seals=True)
    output = configuration.notification.output_directory / f"{Channel.NOTIFICATIONS}.jsonl"
    return FileFeed(partial(output_files, output), operations, receiver.select, seals=False)
