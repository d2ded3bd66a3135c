"""From a configuration to what the console reads."""

from collections.abc import Callable
from functools import partial

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kinds import sinks_of
from notification_service.configuration.sections import TransportType
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.connectors.files.operations import SystemFiles
from notification_service.console.sources import Sources
from notification_service.console.units.sent_notifications import OutputFiles, left_in_queue
from notification_service.console.units.story import Left
from notification_service.events.decoding import DecodingSettings, EnvelopeDecoder
from notification_service.status.bridge import BridgeStatus
from notification_service.status.delivery import DeliveryStatus
from notification_service.status.report import Identity, State, report
from notification_service.status.served import ServedStatus
from notification_service.status.service_report import ServiceReport
from notification_service.supervision.running_service import find_service
from notification_service.supervision.system_clock import SystemClock, steady_clock
from notification_service.wiring.bridge.status import find_bridge_of
from notification_service.wiring.composition import make_order_book, make_storage_view, make_strategy_of, name_storage
from notification_service.wiring.console.archive_distances import find_archive_distances
from notification_service.wiring.console.archived_output import find_left_in
from notification_service.wiring.console.groups import LocalGroups
from notification_service.wiring.console.partitions import InputPartitions
from notification_service.wiring.console.regions import LocalRegions
from notification_service.wiring.console.served import find_served
from notification_service.wiring.console.workers import LocalWorkers
from notification_service.wiring.dead_letter_stores import open_store
from notification_service.wiring.delivery.composition import make_ledger
from notification_service.wiring.delivery.direct import order_delivery
from notification_service.wiring.delivery.status import find_delivery_of
from resequencer.clock import Instant
from resequencer.printable import without_secrets
from resequencer.unit_codec import UnitCodec
from storage.view_port import StorageView

_LAG_UNITS = {
    TransportType.KAFKA: "offsets",
    TransportType.FILE: "bytes",
    TransportType.JMS: "messages",
    TransportType.MQTT: "messages",
    TransportType.XMS: "messages",
}


def console_sources(configuration: Configuration) -> Sources:
    """Nothing is connected or read yet."""
    strategy, clock = make_strategy_of(configuration), SystemClock()
    decoder = EnvelopeDecoder(DecodingSettings(strategy.needs_sequence, configuration.ingress.max_record_bytes))
    partitions, run_directory = InputPartitions(configuration), configuration.notification.run_directory
    return Sources(
        find_report=_find_report_of(configuration),
        open_view=_open_view_of(configuration),
        find_partitions=partitions.find,
        find_ends=partitions.find_ends,
        open_dead_letters=_dead_letters_of(configuration),
        codec=UnitCodec(strategy, decoder.decode),
        workers=LocalWorkers(configuration),
        regions=LocalRegions(configuration),
        clock=clock,
        steady_clock=steady_clock(run_directory, "console", configuration.clock_trusted_after_ms, keeps=True),
        run_directory=run_directory,
        lag_unit=_LAG_UNITS[configuration.ingress.transport],
        facts_unit=_LAG_UNITS[configuration.notification.transport],
        facts=_facts(configuration),
        find_left=_find_left_of(configuration),
        find_served=_find_served_of(configuration),
        storage=name_storage(configuration),
        open_orders=partial(make_order_book, configuration) if configuration.orders.is_enabled else None,
        find_archive_distances=partial(find_archive_distances, configuration),
        find_delivery=_find_delivery_of(configuration),
        find_bridge=_find_bridge_of(configuration),
        open_ledger=partial(make_ledger, configuration) if configuration.delivery.of_ledger else None,
        direct_receivers=tuple(name for name, _ in configuration.delivery.of_topics),
        order_delivery=partial(order_delivery, configuration),
        groups=LocalGroups(configuration) if configuration.aggregation.is_enabled else None,
    )


def _find_report_of(configuration: Configuration) -> Callable[[], ServiceReport | None]:
    run_directory, clock = configuration.notification.run_directory, SystemClock()

    def find_report() -> ServiceReport | None:
        now = clock.now()
        found = find_service(run_directory, now)
        if found.report is not None or found.holder is None:
            return found.report
        return _first_report(configuration, found.holder, now)

    return find_report


def _first_report(configuration: Configuration, holder: str, now: Instant) -> ServiceReport:
    """Return the report of a service that holds the run directory and has not reported: it is starting, no worker is known."""
    ours = Identity(int(holder) if holder.isdecimal() else 0, str(configuration.file), now)
    return ServiceReport(State.STARTING, report(ours, State.STARTING, "no worker has reported yet", now), ())


def _find_served_of(configuration: Configuration) -> Callable[[], ServedStatus]:
    run_directory, clock = configuration.notification.run_directory, SystemClock()

    def find() -> ServedStatus:
        return find_served(run_directory, find_service(run_directory, clock.now()))

    return find


def _find_delivery_of(configuration: Configuration) -> Callable[[], DeliveryStatus]:
    run_directory, clock = configuration.notification.run_directory, SystemClock()
    return lambda: find_delivery_of(configuration, find_service(run_directory, clock.now()))


def _find_bridge_of(configuration: Configuration) -> Callable[[], BridgeStatus]:
    run_directory, clock = configuration.notification.run_directory, SystemClock()
    return lambda: find_bridge_of(configuration, find_service(run_directory, clock.now()))


def _open_view_of(configuration: Configuration) -> Callable[[], StorageView] | None:
    if make_storage_view(configuration) is None:
        return None

    def open_view() -> StorageView:
        view = make_storage_view(configuration)
        assert view is not None
        return view

    return open_view


def _dead_letters_of(configuration: Configuration) -> Callable[[AskedFor, Sign], DeadLetterStore]:
    def open_dead_letters(asked_for: AskedFor, sign: Sign) -> DeadLetterStore:
        return open_store(configuration, asked_for, sign)

    return open_dead_letters


def _find_left_of(configuration: Configuration) -> Callable[[str, float], Left]:
    notification = configuration.notification
    if TransportType.FILE in sinks_of(configuration):
        return OutputFiles(notification.output_directory, SystemFiles()).find_left
    if TransportType.KAFKA in sinks_of(configuration):
        return find_left_in(configuration.archive.location, notification.topic)
    places = {
        TransportType.JMS: f"queue {notification.jms.notifications_queue}",
        TransportType.XMS: f"queue {notification.xms.notifications_queue}",
        TransportType.MQTT: f"topic {notification.mqtt.notifications_topic}",
    }
    return partial(left_in_queue, places[notification.transport])


def _facts(configuration: Configuration) -> tuple[tuple[str, str], ...]:
    ingress, notification, resequencer = configuration.ingress, configuration.notification, configuration.resequencer
    group = next((str(value) for name, value in ingress.kafka_clients if name == "group.id"), "")
    queues = ", ".join(dict.fromkeys(each.queue for each in ingress.jms.partitions))
    inputs = {
        TransportType.KAFKA: f"topic {ingress.topic}",
        TransportType.FILE: f"files in {ingress.file_directory}",
        TransportType.JMS: f"queues {queues} of {without_secrets(ingress.jms.url)}",
    }
    outputs = {
        TransportType.KAFKA: f"topic {notification.topic}",
        TransportType.FILE: f"files in {notification.output_directory}",
        TransportType.JMS: f"queue {notification.jms.notifications_queue} of {without_secrets(notification.jms.url)}",
        TransportType.MQTT: f"topic {notification.mqtt.notifications_topic} of {without_secrets(notification.mqtt.url)}",
        TransportType.XMS: f"queue {notification.xms.notifications_queue} of {without_secrets(notification.xms.url)}",
    }
    return (
        ("Configuration", str(configuration.file)),
        ("Run directory", str(notification.run_directory)),
        ("Input", inputs[ingress.transport]),
        ("Output", "; ".join(outputs[each] for each in sinks_of(configuration))),
        *((("Consumer group", group),) if ingress.transport is TransportType.KAFKA else ()),
        ("Storage", resequencer.storage_type.value),
        ("Strategy", resequencer.strategy),
    )
