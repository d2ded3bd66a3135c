"""Makes what delivers, from the configuration: ledger, delivery workers, and receivers straight from topics."""

import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import TransportType
from notification_service.configuration.transports import kafka_settings
from notification_service.connectors.dead_letters.port import AskedFor, Sign
from notification_service.delivery.caller import CallTally, Network
from notification_service.delivery.core.jobs import GateReport
from notification_service.delivery.direct.core.decision import Stage, find_former_group, stages_of, topics_to_make
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOutcome, DirectResult
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.receiver import DirectReceiver, DirectReport, Topics
from notification_service.delivery.errors import OrderRefused, ReceiverUnknown
from notification_service.delivery.event_file import EventFile
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.ledger.services import Service
from notification_service.delivery.schedules.keys import make_keys
from notification_service.delivery.schedules.runner import ScheduleReport, ScheduleRunner
from notification_service.delivery.schedules.settings import Schedule
from notification_service.delivery.schedules.sink import LedgerSink, RequestSink
from notification_service.delivery.settings import DeliverySettings, Receiver
from notification_service.delivery.source_reader import Sources
from notification_service.delivery.worker import DeliveryWorker, Others, Reporting
from notification_service.lookups.directory import LookupsDirectory
from notification_service.status.delivery import (
    BlockedStatus,
    DeliveredPartition,
    DeliveryReport,
    DirectStatus,
    GateStatus,
    ReceiverCalls,
    ScheduleStatus,
    delivery_file,
)
from notification_service.status.file import SideFile
from notification_service.supervision.system_clock import SystemClock, steady_clock
from notification_service.wiring.delivery_sources import live_source, open_feed
from resequencer.clock import Clock, Instant, SteadyClock, instant_text
from resequencer.errors import ConfigurationError
from resequencer.record import OutputNumber, Partition

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
    from notification_service.connectors.kafka.settings import KafkaSettings
    from notification_service.delivery.direct.order_topic import OrderLog, OrderTopic

_HEADERS_BYTES = 64 << 10


def make_runner(
    configuration: Configuration, name: str, schedule: Schedule, ledger: Ledger, owner: str, clock: SteadyClock
) -> ScheduleRunner:
    """Return the runner of a schedule; nothing is connected yet."""
    keys = make_keys(schedule.keys, LookupsDirectory(configuration.lookups.directory))
    return ScheduleRunner(name, schedule, keys, _sink_of(configuration, name, schedule, ledger, owner), clock)


def _sink_of(configuration: Configuration, name: str, schedule: Schedule, ledger: Ledger, owner: str) -> RequestSink:
    if schedule.receiver:
        return LedgerSink(ledger, name, schedule.receiver, owner, schedule.waiting)
    from notification_service.delivery.published_topics import TopicSink

    group = f"{configuration.storage.namespace}-schedule-{name}"
    return TopicSink(kafka_settings(configuration), name, schedule.topic, group)


def make_ledger(configuration: Configuration, slot: int | None = None, service: Service = Service()) -> Ledger:  # noqa: B008
    """Return the ledger, which connects at its first use; `slot` is the delivery worker's, None for any other process.

    It has the receivers whose policy is `ledger`. What starts jobs, or publishes their ends, names its `service`.

    Raises:
        ConfigurationError: Neither a receiver nor a schedule is configured.
    """
    delivery = configuration.delivery
    if not delivery.receivers and not delivery.schedules:
        raise ConfigurationError(path_of(DeliverySettings, "receivers"), "is empty: name a receiver, and give its url")
    settings = delivery.ledger
    url = f"sqlite:///{settings.file.absolute()}" if settings.url is None else str(settings.url)
    clock = _clock(configuration, slot, "" if settings.url is None else "-ledger")
    return Ledger(Database(url, clock), delivery.of_ledger, settings.retention_ms, delivery.worker.stalled_after_ms, service)


def make_worker(configuration: Configuration, ledger: Ledger, slot: int | None) -> DeliveryWorker:
    """Return a delivery worker. The ledger knows it by machine and process, and by a number that no other has."""
    delivery = configuration.delivery
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    forbidden = [ipaddress.ip_network(each) for each in delivery.forbidden_addresses]
    live, former = live_source(configuration, ledger.service)
    sources = Sources(live, partial(open_feed, configuration), former)
    publish = _event_publisher(configuration, ledger)
    clock = ledger.database.clock if ledger.database.is_sqlite else _clock(configuration, slot)
    direct = [make_direct_receiver(configuration, name, each, slot, forbidden, clock) for name, each in delivery.of_topics]
    schedules = [make_runner(configuration, name, each, ledger, owner, clock) for name, each in delivery.schedules]
    return DeliveryWorker(ledger, delivery.worker, owner, sources, publish, forbidden, Others(direct, schedules))


def make_report(configuration: Configuration, slot: int) -> Reporting:
    """Return what the worker in this slot reports by."""
    return partial(_report, delivery_file(configuration.notification.run_directory, slot), SystemClock())


def _clock(configuration: Configuration, slot: int | None, of: str = "") -> SteadyClock:
    """Return the clock of a delivery worker. Other processes begin with what the first worker knows of it."""
    run_directory, trusted_ms = configuration.notification.run_directory, configuration.clock_trusted_after_ms
    return steady_clock(run_directory, f"delivery-{slot or 0}{of}", trusted_ms, keeps=slot is not None)


def _event_publisher(configuration: Configuration, ledger: Ledger) -> Callable[[], int]:
    notification = configuration.notification
    if notification.transport is TransportType.FILE:
        return EventFile(notification.output_directory / "job-events.jsonl", ledger.events).publish
    from notification_service.delivery.published_topics import EventTopic

    group = f"{configuration.storage.namespace}-events"
    return EventTopic(kafka_settings(configuration), configuration.delivery.events_topic, group, ledger.events).publish


def _report(
    file: SideFile[DeliveryReport],
    clock: Clock,
    problem: str | None,
    gates: Sequence[GateReport],
    direct: Sequence[DirectReport],
    schedules: Sequence[ScheduleReport],
    tallies: Mapping[str, CallTally],
) -> None:
    statuses = tuple(map(_gate_status, gates))
    file.write(
        DeliveryReport(
            os.getppid(), os.getpid(), instant_text(clock.now()), problem, statuses,
            tuple(map(_direct_status, direct)), tuple(map(_schedule_status, schedules)),
            tuple(ReceiverCalls(name, dict(each.answers), each.durations.report()) for name, each in tallies.items()),
        )
    )  # fmt: skip


def _gate_status(gate: GateReport) -> GateStatus:
    return GateStatus(
        receiver=gate.receiver,
        is_open=gate.is_open,
        waiting=gate.waiting,
        reason=None if gate.is_open else gate.reason,
        since=None if gate.is_open else _text(gate.since),
        probe_at=None if gate.is_open else _text(gate.probe_at),
        failed=gate.failed,
        held_units=gate.held_units,
        retries=tuple(msgspec.structs.asdict(gate.retries).items()),
        stalled_jobs=gate.stalled_jobs,
        unread_ms=gate.unread_ms,
        missing_jobs=gate.missing_jobs,
        backlog=gate.backlog,
        pause=gate.pause,
    )


def _direct_status(report: DirectReport) -> DirectStatus:
    is_shut = report.shut_because is not None
    return DirectStatus(
        receiver=report.receiver,
        reason=report.shut_because,
        since=instant_text(report.shut_since) if is_shut else None,
        probe_at=instant_text(report.probe_at) if is_shut else None,
        problem=report.problem,
        notes=report.notes,
        pause=report.pause,
        partitions=tuple(
            DeliveredPartition(
                partition=str(each.partition),
                position=each.position,
                end=each.end,
                open=each.open_count,
                blocked=each.blocked_count,
                records=tuple(
                    BlockedStatus(str(record.origin), record.key, instant_text(record.since), record.attempts, record.error)
                    for record in each.blocked
                ),
                oldest_at=None if each.oldest_at is None else instant_text(each.oldest_at),
                skips_all=each.skips_all,
                pause=each.pause,
                problem=each.problem,
                backlog=each.backlog,
            )
            for each in report.partitions
        ),
    )


def _schedule_status(report: ScheduleReport) -> ScheduleStatus:
    return ScheduleStatus(
        schedule=report.name,
        expression=report.expression,
        tick=_text(report.tick),
        made=report.made,
        total=report.total,
        next_tick=_text(report.next_tick),
        overdue_since=_text(report.overdue_since),
        problem=report.problem,
        waiting=report.waiting,
        ticks_waiting=report.ticks_waiting,
    )


def _text(instant: Instant | None) -> str | None:
    return None if instant is None else instant_text(instant)


def stages_of_receiver(configuration: Configuration, name: str, receiver: Receiver) -> tuple[Stage, ...]:
    """Return the stages of a receiver, with the names of its topics and groups."""
    group = receiver.group or f"{configuration.storage.namespace}-{name}"
    return stages_of(receiver, receiver.topic or configuration.notification.topic, group)


def settings_of_stage(configuration: Configuration, stage: Stage, slot: int | None) -> "KafkaSettings":
    """Return the settings to read the stage's topic. Without a slot the transactional id is a new one."""
    settings = kafka_settings(configuration, slot or 0)
    service = settings.transactional_id.split(".")[-2]
    consumer = {name: value for name, value in settings.consumer.items() if name != "group_instance_id"}
    member = uuid4().hex if slot is None else f"{service}.{slot}"
    # What is read is sent again: with more headers, as a moved record or a dead letter.
    largest = max(settings.max_request_bytes, settings.max_value_bytes + _HEADERS_BYTES)
    return replace(
        settings,
        topics=stage.topics,
        consumer={**consumer, "group_id": stage.group},
        producer={**settings.producer, "max_request_size": largest, "transactional_id": f"{stage.group}.{member}"},
        begins_at_earliest=True,
    )


def make_direct_receiver(
    configuration: Configuration,
    name: str,
    receiver: Receiver,
    slot: int | None,
    forbidden: Sequence[Network],
    clock: SteadyClock,
) -> DirectReceiver:
    """Return the receiver; nothing is connected yet."""
    stages = stages_of_receiver(configuration, name, receiver)
    make, clients = partial(_make_topics, configuration, stages), partial(_clients_of, configuration, slot)
    topics = Topics(make, clients, partial(_open_order_log, configuration, slot, stages[0]))
    return DirectReceiver(name, receiver, stages, topics, clock, forbidden)


def _open_order_log(configuration: Configuration, slot: int | None, source: Stage) -> "OrderLog":
    from notification_service.delivery.direct.order_topic import OrderLog

    return OrderLog(settings_of_stage(configuration, source, slot))


def _clients_of(configuration: Configuration, slot: int | None, stage: Stage) -> StageClients:
    from notification_service.connectors.kafka.orders import KafkaOrderSource
    from notification_service.connectors.kafka.sink import KafkaTransport

    settings = settings_of_stage(configuration, stage, slot)
    orders = KafkaOrderSource(settings) if stage.orders else None
    return StageClients(KafkaTransport(settings, SystemClock()), orders, settings.session_timeout_ms)


def _make_topics(configuration: Configuration, stages: Sequence[Stage]) -> Mapping[str, str]:
    """Make the topics; return the retry topics of earlier intervals that are not read up to their ends, with their groups."""
    from notification_service.connectors.kafka.preflight import find_unread
    from notification_service.connectors.kafka.topics import make_topics

    settings = kafka_settings(configuration)
    make_topics(settings, stages[0].topic, topics_to_make(stages))
    return find_unread(settings, partial(find_former_group, stages))


def _open_order_topic(configuration: Configuration, name: str) -> "OrderTopic":
    """Return where orders for a receiver's partitions are given.

    Raises:
        ReceiverUnknown: There is no such receiver.
    """
    from notification_service.delivery.direct.order_topic import OrderTopic

    return OrderTopic(settings_of_stage(configuration, _source_of(configuration, name), None))


def order_delivery(
    configuration: Configuration, name: str, given: Sequence[tuple[Partition | None, DirectOrder]], seconds: float
) -> list[DirectOutcome | None]:
    """Give orders for partitions of a receiver, or with None for the whole receiver; return the outcome of each.

    It is None for what has no outcome after so many seconds, from when all were given. An order that cannot be given to one of
    several partitions is refused by its outcome, and the others are given.

    Raises:
        ReceiverUnknown: There is no such receiver.
        OrderRefused: The one order cannot be given.
        TransportUnavailable, TransportRefused: It is not known whether an order was given.
    """
    topic, found = _open_order_topic(configuration, name), list[tuple[Partition, DirectOrder, int | DirectOutcome]]()
    for partition, order in given:
        place = Partition(_source_of(configuration, name).topic, 0) if partition is None else partition
        try:
            found.append((place, order, topic.give(place, order)))
        except OrderRefused as error:
            if len(given) == 1:
                raise
            refused = DirectOutcome(id=order.id, result=DirectResult.REFUSED, text=str(error), at=order.at)
            found.append((place, order, refused))
    until = monotonic() + seconds
    return [
        at if isinstance(at, DirectOutcome) else topic.wait_for_outcome(place, order, at, max(0.0, until - monotonic()), sleep)
        for place, order, at in found
    ]


def find_partitions_of(configuration: Configuration, name: str) -> Sequence[Partition]:
    """Return the partitions that the source of a receiver has now. Raises as `order_delivery`."""
    return _open_order_topic(configuration, name).partitions()


def open_dead_letters(configuration: Configuration, name: str, asked_for: AskedFor, sign: Sign) -> "KafkaDeadLetterStore":
    """Open the dead letters of a receiver; nothing is written.

    Raises:
        ReceiverUnknown: There is no such receiver.
    """
    from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
    from notification_service.delivery.direct.requeue import requeue_route

    source = _source_of(configuration, name)
    route = requeue_route(source.topic, source.group, SystemClock())
    return KafkaDeadLetterStore(settings_of_stage(configuration, source, None), asked_for, sign, route)


def find_receiver_of(configuration: Configuration, dead_letter: str) -> str | None:
    """Return the receiver of a dead letter with this number; None if it is the service's own."""
    number = OutputNumber.find(dead_letter)
    for name, receiver in configuration.delivery.of_topics:
        if number and stages_of_receiver(configuration, name, receiver)[0].dead_letters == number.partition.topic:
            return name
    return None


def _source_of(configuration: Configuration, name: str) -> Stage:
    receivers = dict(configuration.delivery.of_topics)
    if name not in receivers:
        raise ReceiverUnknown(name, receivers)
    return stages_of_receiver(configuration, name, receivers[name])[0]
