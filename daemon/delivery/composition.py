"""Makes ledger, feeds and delivery workers from the configuration."""

import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

from daemon.configuration.configuration import Configuration
from daemon.configuration.kafka_settings import kafka_settings
from daemon.configuration.schema import path_of
from daemon.configuration.sections import TransportType
from daemon.delivery.sources import LIVE, open_feed
from daemon.system_clock import SystemClock
from delivery.event_file import EventFile
from delivery.jobs import GateReport
from delivery.ledger.database import Database
from delivery.ledger.ledger import Ledger
from delivery.settings import DeliverySettings
from delivery.source_reader import Sources
from delivery.worker import DeliveryWorker
from domain.clock import Clock, Instant, instant_text
from domain.errors import ConfigurationError
from status.delivery import DeliveryFile, DeliveryReport, GateStatus

EventsAfter = Callable[[int, int], Sequence[bytes]]


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
    """Return a delivery worker, which reports to `status` if it is in a slot. The ledger knows it by machine and process."""
    delivery = configuration.delivery
    owner = f"{socket.gethostname()}:{os.getpid()}"
    forbidden = [ipaddress.ip_network(each) for each in delivery.forbidden_addresses]
    sources = Sources(LIVE, partial(open_feed, configuration))
    publish = partial(_event_publisher(configuration), ledger.events_after)
    if slot is None:
        return DeliveryWorker(ledger, delivery.worker, owner, sources, publish, forbidden)
    report = partial(_report, DeliveryFile(configuration.notification.run_directory, slot), slot, SystemClock())
    return DeliveryWorker(ledger, delivery.worker, owner, sources, publish, forbidden, report)


def _event_publisher(configuration: Configuration) -> Callable[[EventsAfter], int]:
    notification = configuration.notification
    if notification.transport is TransportType.FILE:
        return EventFile(notification.output_directory / "job-events.jsonl").publish
    from delivery.event_topic import EventTopic

    group = f"{configuration.storage.namespace}-events"
    return EventTopic(kafka_settings(configuration), configuration.delivery.events_topic, group).publish


def _report(file: DeliveryFile, slot: int, clock: Clock, problem: str | None, gates: Sequence[GateReport]) -> None:
    told = tuple(
        GateStatus(each.receiver, each.is_open, each.waiting) if each.is_open else
        GateStatus(each.receiver, each.is_open, each.waiting, each.reason, _text(each.since), _text(each.probe_at))
        for each in gates
    )  # fmt: skip
    file.write(DeliveryReport(os.getppid(), os.getpid(), slot, instant_text(clock.now()), problem, told))


def _text(instant: Instant | None) -> str | None:
    return None if instant is None else instant_text(instant)
