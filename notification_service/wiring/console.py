"""From a configuration to what the console reads, and to who may use it."""

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock, Thread
from typing import TYPE_CHECKING
from weakref import finalize

from guardian.headers import find_unit, own_texts
from guardian.ports import TransportRefused
from notification_service.aggregation.commands import CommandWriter
from notification_service.aggregation.completions import CompletionsLog
from notification_service.aggregation.settings import PAYMENTS
from notification_service.aggregation.view import StoreView, ValueChange
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import TransportType
from notification_service.configuration.storages import storage_kind
from notification_service.configuration.transports import copied_settings, kafka_settings, sinks_of
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan
from notification_service.connectors.files.source import partition_numbers
from notification_service.connectors.line_format import Line, decode_line
from notification_service.console.access.identity import Authenticator, NoLogin
from notification_service.console.access.settings import HttpSettings, HttpTls
from notification_service.console.access.users_file import UsersFile
from notification_service.console.sources import ArchiveDistance, ArrivedEarlier, Sources, nothing_archived
from notification_service.console.unit_story import UnitsFound
from notification_service.events.pass_through import PASS_THROUGH
from notification_service.jobs.topic_archive.local_reading import find_newest, find_path, records_in_order
from notification_service.jobs.topic_archive.manifest import Ends
from notification_service.status.aggregation import AggregationStatus, BridgeStatus
from notification_service.status.delivery import DeliveryStatus
from notification_service.status.report import Identity, State, report
from notification_service.status.service_report import ServedStatus, ServiceReport
from notification_service.supervision.locks import AlreadyRunning, RunLock, find_service
from notification_service.supervision.system_clock import SystemClock, steady_clock
from notification_service.wiring.aggregation import (
    StoreNames,
    find_changes,
    open_commands,
    open_completions,
    open_copies,
    open_view,
    stores_of,
)
from notification_service.wiring.composition import make_codec, make_decoder, make_order_book
from notification_service.wiring.dead_letter_stores import open_store
from notification_service.wiring.delivery import find_partitions_of, make_ledger, order_delivery
from notification_service.wiring.local_workers import LocalWorkers
from notification_service.wiring.regions import LocalRegions, LocalSink
from notification_service.wiring.sent_notifications import (
    NotReadable,
    OutputFiles,
    SentLog,
    archived_output,
    find_arrived_in,
)
from notification_service.wiring.side_reports import find_aggregation_of, find_bridge_of, find_delivery_of, find_served
from resequencer.clock import Instant
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.event import Refusal
from resequencer.printable import find_text, printable, without_secrets
from resequencer.record import Origin, Partition, Record
from storage.view_port import StorageView

if TYPE_CHECKING:
    from notification_service.connectors.kafka.settings import KafkaSettings


_log = logging.getLogger("resequencer.console")
_DIRECTORY = "console"


class LocalStore:
    """A `StoreSource`. The directory is in that of the store; a second console beside it has a temporary one."""

    def __init__(self, configuration: Configuration, names: StoreNames) -> None:
        self._configuration = configuration
        self._names = names
        self._lock = Lock()
        self._claimed: Path | None = None
        self._held: RunLock | None = None

    def claim(self) -> Path:
        """As `StoreSource.claim`.

        Raises:
            DirectoryUnusable: Nothing can be written there.
        """
        with self._lock:
            if self._claimed is None:
                self._claimed = self._claim()
            return self._claimed

    def open_view(self) -> StoreView:
        return open_view(self._configuration, self._names, self.claim())

    def open_copies(self) -> StoreView:
        return open_copies(self._configuration, self._names, self.claim())

    def open_commands(self) -> CommandWriter:
        return open_commands(self._configuration, self._names)

    def open_completions(self) -> CompletionsLog:
        return open_completions(self._configuration, self._names)

    def find_changes(self, key: str, limit: int) -> Sequence[ValueChange] | None:
        return find_changes(self._configuration, self._names, key, limit)

    def _claim(self) -> Path:
        directory = self._names.directory / _DIRECTORY
        lock = RunLock(directory, is_private=True)
        try:
            lock.acquire()
        except AlreadyRunning as error:
            other = mkdtemp(prefix="resequencer-store-")
            finalize(self, rmtree, other, ignore_errors=True)
            _log.warning("%s. This console reads the values into %s, and deletes that at its end", error, other)
            return Path(other)
        self._held = lock
        return directory


_FRESH_MS = 30_000
"""Partitions are added rarely, and asking for them takes a request to the brokers."""


class InputPartitions:
    """Remembers for a while what it found. May be used from several threads."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._clock = SystemClock()
        self._lock = Lock()
        self._found: tuple[Partition, ...] = ()
        self._found_at: Instant | None = None

    def find(self) -> Sequence[Partition]:
        """Return the partitions of the input, by number. Only the first call waits for the brokers: later ones return what
        is known, and a thread asks again for what is old.

        Raises:
            TransportUnavailable: The brokers do not answer, and no earlier answer is known.
        """
        with self._lock:
            now = self._clock.now()
            if self._found_at is None:
                self._found, self._found_at = self._look(), now
            elif not 0 <= now - self._found_at < _FRESH_MS:
                self._found_at = now
                Thread(target=self._look_again, name="partitions of the input", daemon=True).start()
            return self._found

    def _look_again(self) -> None:
        with suppress(ResequencerError):  # What is known holds until the brokers answer.
            self._found = self._look()

    def find_ends(self) -> Mapping[Partition, int]:
        """Return where the log of each partition ends now: an offset on Kafka, a length in bytes of a file.

        A queue has no such end: none is returned.

        Raises: as `find`.
        """
        ingress, partitions = self._configuration.ingress, self.find()
        if ingress.transport is TransportType.JMS:
            return {}
        if ingress.transport is TransportType.FILE:
            files = {each: ingress.file_directory / f"partition-{each.number}.jsonl" for each in partitions}
            return {each: file.stat().st_size for each, file in files.items() if file.exists()}
        from notification_service.connectors.kafka.log_reader import LogReader

        log = LogReader(kafka_settings(self._configuration))
        try:
            return log.ends(partitions)
        finally:
            log.close()

    def _look(self) -> tuple[Partition, ...]:
        ingress = self._configuration.ingress
        if ingress.transport is TransportType.JMS:
            return tuple(Partition(each.queue, number) for number, each in enumerate(ingress.jms.partitions))
        if ingress.transport is TransportType.FILE:
            return tuple(Partition(ingress.topic, number) for number in partition_numbers(ingress.file_directory))
        from notification_service.connectors.kafka.log_reader import LogReader

        log = LogReader(kafka_settings(self._configuration))
        try:
            return tuple(log.partitions(ingress.topic))
        finally:
            log.close()


def find_archive_distances(configuration: Configuration) -> Mapping[Partition, ArchiveDistance]:
    """Return the distances of all partitions of the topics; empty without Kafka, and without an archive at a path.

    Raises:
        ArchiveRefused, ArchiveUnavailable: The archive cannot be read.
        TransportUnavailable, TransportRefused: The brokers cannot be asked.
    """
    transports = configuration.ingress.transport, configuration.notification.transport
    path = find_path(configuration.archive.location)
    newest = find_newest(path) if path is not None and set(transports) == {TransportType.KAFKA} else None
    return {} if newest is None else _distances(newest.ends, copied_settings(configuration))


def _distances(ends: Ends, settings: "KafkaSettings") -> Mapping[Partition, ArchiveDistance]:
    """Return how far these archived ends are from the logs' first offsets and stable ends.

    A partition that was never archived is archived from its first offset on, so that is its end.
    """
    from notification_service.connectors.kafka.log_reader import LogReader

    with closing(LogReader(settings)) as log:
        partitions = [each for topic in settings.topics.all for each in log.partitions(topic)]
        starts, written = log.starts(partitions), log.ends(partitions)
    found: dict[Partition, ArchiveDistance] = {}
    for partition in sorted(starts.keys() & written.keys()):
        archived = ends.get(partition.topic, {}).get(partition.number, starts[partition])
        found[partition] = ArchiveDistance(archived - starts[partition], written[partition] - archived)
    return found


_LAG_UNITS = {
    TransportType.KAFKA: "offsets",
    TransportType.FILE: "bytes",
    TransportType.JMS: "messages",
    TransportType.MQTT: "messages",
    TransportType.XMS: "messages",
}


def console_sources(configuration: Configuration) -> Sources:
    """Nothing is connected or read yet."""
    codec, clock, sent = make_codec(configuration), SystemClock(), _sent_log_of(configuration)
    partitions, run_directory = InputPartitions(configuration), configuration.notification.run_directory
    names = stores_of(configuration) if configuration.aggregation.is_enabled else ()
    stores = {each.name: LocalStore(configuration, each) for each in names}
    return Sources(
        find_report=_find_report_of(configuration),
        open_view=_open_view_of(configuration),
        find_partitions=partitions.find,
        find_ends=partitions.find_ends,
        open_dead_letters=_dead_letters_of(configuration),
        codec=codec,
        workers=LocalWorkers(configuration),
        regions=LocalRegions(configuration),
        sink=LocalSink(configuration) if TransportType.MQTT in sinks_of(configuration) else None,
        clock=clock,
        steady_clock=steady_clock(run_directory, "console", configuration.clock_trusted_after_ms, keeps=True),
        run_directory=run_directory,
        lag_unit=_LAG_UNITS[configuration.ingress.transport],
        facts_unit=_LAG_UNITS[configuration.notification.transport],
        facts=_facts(configuration),
        find_sent=sent.find_sent,
        find_sent_by=sent.find_sent_by,
        find_unit_at=partial(find_unit_at, configuration),
        find_arrived=_find_arrived_of(configuration),
        find_written=WrittenAt(configuration).find,
        find_served=_find_served_of(configuration),
        storage=storage_kind(configuration).name(configuration),
        open_orders=partial(make_order_book, configuration) if configuration.orders.is_enabled else None,
        find_archive_distances=partial(find_archive_distances, configuration),
        find_delivery=_find_delivery_of(configuration),
        find_bridge=_find_bridge_of(configuration),
        find_aggregation=_find_aggregation_of(configuration),
        open_ledger=partial(make_ledger, configuration) if configuration.delivery.of_ledger else None,
        direct_receivers=tuple(name for name, _ in configuration.delivery.of_topics),
        order_delivery=partial(order_delivery, configuration),
        find_partitions_of=partial(find_partitions_of, configuration),
        groups=stores.pop(PAYMENTS, None),
        stores=stores,
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


def _find_aggregation_of(configuration: Configuration) -> Callable[[], AggregationStatus]:
    run_directory, clock = configuration.notification.run_directory, SystemClock()
    return lambda: find_aggregation_of(configuration, find_service(run_directory, clock.now()))


def _find_bridge_of(configuration: Configuration) -> Callable[[], BridgeStatus]:
    run_directory, clock = configuration.notification.run_directory, SystemClock()
    return lambda: find_bridge_of(configuration, find_service(run_directory, clock.now()))


def _open_view_of(configuration: Configuration) -> Callable[[], StorageView] | None:
    open_view = storage_kind(configuration).open_view
    return None if open_view is None else partial(open_view, configuration)


def _dead_letters_of(configuration: Configuration) -> Callable[[AskedFor, Sign], DeadLetterStore]:
    def open_dead_letters(asked_for: AskedFor, sign: Sign) -> DeadLetterStore:
        return open_store(configuration, asked_for, sign)

    return open_dead_letters


def _sent_log_of(configuration: Configuration) -> SentLog:
    notification = configuration.notification
    if TransportType.FILE in sinks_of(configuration):
        return OutputFiles(notification.output_directory, SystemFiles())
    if TransportType.KAFKA in sinks_of(configuration):
        passes_through = notification.handler == PASS_THROUGH
        return archived_output(configuration.archive.location, notification.topic, passes_through=passes_through)
    places = {
        TransportType.JMS: f"queue {notification.jms.notifications}",
        TransportType.XMS: f"queue {notification.xms.notifications}",
        TransportType.MQTT: f"topic {notification.mqtt.notifications}",
    }
    return NotReadable(f"they are in the {places[notification.transport]}, whose readers take them away")


def find_unit_at(configuration: Configuration, origin: Origin, max_seconds: float) -> UnitsFound:
    """Return the unit of the record at a position of the input, or of the topic of notifications. Never raises."""
    del max_seconds  # One record is read.
    try:
        record = _find_record(configuration, origin)
        unit = None if record is None else _unit_of(configuration, record)
    except ResequencerError as error:
        return UnitsFound((), is_complete=False, searched=f"not read: {printable(str(error))}")
    if record is None:
        searched = f"no record at {origin}: it was deleted, or is not there yet; an archive of the topics keeps what is deleted"
    else:
        searched = f"the record at {origin}{'' if unit else ', which names no unit'}"
    return UnitsFound(() if unit is None else (unit,), is_complete=True, searched=searched)


def _find_record(configuration: Configuration, origin: Origin) -> Record | None:
    """Return the record at a position, from the archive if the brokers have it no more.

    Raises:
        TransportRefused: No such position can be read; it says why.
    """
    ingress, notification = configuration.ingress, configuration.notification
    topic, number = origin.partition
    is_input = topic == ingress.topic
    if is_input and ingress.transport is TransportType.FILE:
        line = next(scan(ingress.file_directory / f"partition-{number}.jsonl", SystemFiles(), origin.offset), None)
        read = None if line is None else decode_line(line.content)
        return Record(origin, read.value, read.key, read.headers) if isinstance(read, Line) else None
    is_output = topic == notification.topic and TransportType.KAFKA in sinks_of(configuration)
    if not is_output and not (is_input and ingress.transport is TransportType.KAFKA):
        raise TransportRefused(
            str(origin), "only the input and the topic of notifications can be read at a position, and no queue"
        )
    from notification_service.connectors.kafka.topic_reader import find_record

    path = find_path(configuration.archive.location)
    found = find_record(kafka_settings(configuration), origin)
    if found is not None or path is None or not path.is_dir():
        return found
    archived = records_in_order(path, topic, {number: origin.offset}, {number: origin.offset + 1}, 1)
    each = next(archived, [None])[0]
    return None if each is None else Record(origin, each.value, each.key, each.headers, written_at=each.timestamp)


def _find_arrived_of(configuration: Configuration) -> Callable[[str, float], ArrivedEarlier]:
    path, ingress = find_path(configuration.archive.location), configuration.ingress
    if path is None or ingress.transport is not TransportType.KAFKA:
        return nothing_archived
    return partial(find_arrived_in, path, ingress.topic)


_MAX_REMEMBERED = 10_000


class WrittenAt:
    """When the brokers had the records of the input. It is remembered: a page that fetches itself again asks nothing twice."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._known: dict[Origin, Instant] = {}
        self._lock = Lock()

    def find(self, origins: Sequence[Origin], max_seconds: float) -> Mapping[Origin, Instant]:
        """Return the instants of those that can be read, for about so many seconds. Never raises."""
        ingress = self._configuration.ingress
        if ingress.transport is not TransportType.KAFKA:
            return {}
        from notification_service.connectors.kafka.topic_reader import find_written

        with self._lock:
            wanted = [each for each in origins if each.partition.topic == ingress.topic and each not in self._known]
        found: Mapping[Origin, Instant] = {}
        if wanted:
            with suppress(ResequencerError):
                found = find_written(kafka_settings(self._configuration), ingress.topic, wanted, max_seconds)
        with self._lock:
            if len(self._known) > _MAX_REMEMBERED:
                self._known.clear()
            self._known |= found
            return {each: at for each in origins if (at := self._known.get(each)) is not None}


def _unit_of(configuration: Configuration, record: Record) -> str | None:
    if record.origin.partition.topic != configuration.ingress.topic:
        return find_unit(record.key, own_texts(record.headers))
    decoded = make_decoder(configuration).decode(record)
    if isinstance(decoded, Refusal):
        return None if record.key is None else find_text(record.key)
    return decoded.unit


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
        TransportType.JMS: f"queue {notification.jms.notifications} of {without_secrets(notification.jms.url)}",
        TransportType.MQTT: f"topic {notification.mqtt.notifications} of {without_secrets(notification.mqtt.url)}",
        TransportType.XMS: f"queue {notification.xms.notifications} of {without_secrets(notification.xms.url)}",
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


def make_authenticator(settings: HttpSettings) -> Authenticator:
    """Return what finds out who makes a request.

    Raises:
        ConfigurationError: The users' file has no user who could log in.
        UsersFileUnusable: The users' file cannot be read.
    """
    if settings.auth == "none":
        return NoLogin()
    # Imported here: it needs the extra [console], which `units`, `orders` and `verify` do without.
    from notification_service.console.access.logins import BasicLogin, BearerLogin, ProxyLogin

    if settings.auth == "proxy":
        return ProxyLogin(settings.proxy)
    file = UsersFile(settings.users_file)
    users = file.read()
    if not (users.users if settings.auth == "basic" else users.tokens):
        what, command = ("user", "add-user") if settings.auth == "basic" else ("token", "add-token")
        problem = f"is {settings.auth}, and {settings.users_file} has no {what}: run `resequencer console {command} NAME`"
        raise ConfigurationError(path_of(HttpSettings, "auth"), problem)
    return BasicLogin(file, SystemClock()) if settings.auth == "basic" else BearerLogin(file)


def check_tls(tls: HttpTls) -> None:
    """Raises ConfigurationError if the certificate or its key cannot be used."""
    if tls.certificate_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        problem = f"{tls.certificate_file} and {tls.key_file} cannot be used: {error}"
        raise ConfigurationError(path_of(HttpTls, "certificate_file"), problem) from error
