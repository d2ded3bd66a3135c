"""Makes the transport of a region: a source, and one or several sinks, of different kinds (docs/regions.md).

They are a file in the run directory, written durably by `resequencer sink set`. A worker reads it before each publication: so
what was set holds from the next publication on, and after each reset and each start.
"""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from guardian.ports import TransportRefused
from guardian.region import RegionState
from notification_service.aggregation.settings import AggregationSettings
from notification_service.bridge.settings import BridgeSettings
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import ConfigurationRefused, path_of
from notification_service.configuration.sections import Ingress, Notifications, StorageType, TransportType
from notification_service.configuration.storages import STORAGE_TYPE
from notification_service.configuration.transports import (
    file_settings,
    jms_sink_settings,
    jms_source_settings,
    kafka_sink_settings,
    kafka_source_settings,
    mqtt_sink_settings,
    sinks_of,
    xms_sink_settings,
)
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.files.source import FileSource
from notification_service.connectors.mqtt.settings import MQTT_URL, QOS, TOPIC, MqttSinkSettings
from notification_service.connectors.mqtt.topic_export import TopicExport
from notification_service.connectors.region_port import Sink, Source
from notification_service.connectors.region_transport import RegionTransport, routes_of
from notification_service.console.access.settings import INITIAL_STATE
from notification_service.status.report import RegionStatus
from notification_service.status.service_report import NOT_RUNNING, find_reports
from notification_service.status.sink_attributes import (
    Change,
    RegionOrder,
    RegionOrderFile,
    RegionProposalFile,
    SetAttributes,
    ShownAttribute,
    SinkAttributesFile,
)
from notification_service.supervision.locks import find_service
from notification_service.supervision.stop_signal import Wait
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_of, instant_text
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.keys.value_types import Mismatch, ValueType
from resequencer.order import is_proposal_open, is_same_person


class RegionNotReset(ResequencerError):
    """There is no region that the order could be given to."""


def find_initial_refusal(configuration: Configuration) -> str | None:
    """Return why no region of this service may go back to its initial state, and what to do; None if it may."""
    if configuration.resequencer.storage_type is StorageType.NONE:
        return f"{STORAGE_TYPE} is none: what was sent would be sent again without a mark. Use another storage"
    if configuration.ingress.transport is TransportType.JMS:
        problem = "is jms: messages that were acknowledged cannot be read again, and what waits would be lost"
        remedy = "`resequencer region reset` lets come again what is not acknowledged"
        return f"{path_of(Ingress, 'transport')} {problem}. {remedy}"
    if configuration.aggregation.is_enabled:
        problem = "is true: a group that has ended and is forgotten would be reported again without a mark"
        remedy = "Read the log again with a service of its own: with another group, storage.namespace and output"
        return f"{path_of(AggregationSettings, 'is_enabled')} {problem}. {remedy}"
    return None


class LocalRegions:
    """Gives orders for regions to the workers of the service that runs on this machine.

    Raises of each call that gives an order:
        RegionNotReset: It could not be written, or is refused.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._run_directory = configuration.notification.run_directory
        self.refusal = find_initial_refusal(configuration)
        """Why no region may go back to its initial state, None if one may."""
        self.needs_approval = INITIAL_STATE in configuration.http.approval
        self._deciding = Lock()

    def reset(self, slot: int, by: str, *, is_forced: bool) -> str | None:
        """Order a reset to the last checkpoint, and return the order's id; None if no worker has this slot.

        The worker reads it within a second.
        """
        order = self._make(slot, by, is_forced=is_forced)
        return None if order is None else self._give(slot, order)

    def plan_initial(self, slot: int, by: str) -> str | None:
        """Let the worker say what its initial state would mean, and return the id of this order; None as in `reset`."""
        if RegionOrderFile(self._run_directory, slot).is_unread:  # To ask must not take an order away.
            raise RegionNotReset(f"worker {slot} has not read the last order yet; try again")
        order = self._make(slot, by, to_initial=True, is_dry_run=True)
        return None if order is None else self._give(slot, order)

    def reset_to_initial(self, slot: int, by: str, because: str) -> RegionOrder | None:
        """Order the initial state, or propose it where a second person has to approve it. None as in `reset`."""
        if self.refusal is not None:
            raise RegionNotReset(self.refusal)
        order = self._make(slot, by, to_initial=True, because=because)
        if order is not None:
            self._give(slot, order, is_proposal=self.needs_approval)
        return order

    def find_proposal(self, slot: int) -> RegionOrder | None:
        """Return the proposal that waits for a second person, if there is one."""
        found = RegionProposalFile(self._run_directory, slot).find(self._service())
        return found if found is not None and is_proposal_open(instant_of(found.at), SystemClock().now()) else None

    def decide(self, slot: int, proposal_id: str, by: str, *, is_approved: bool) -> None:
        """Approve the proposal, which gives the order, or take it away. Of two people who decide at once one is refused."""
        with self._deciding:
            self._decide(slot, proposal_id, by, is_approved=is_approved)

    def _decide(self, slot: int, proposal_id: str, by: str, *, is_approved: bool) -> None:
        proposal = self.find_proposal(slot)
        if proposal is None or proposal.id != proposal_id:
            raise RegionNotReset("there is no such proposal any more: it was decided, replaced, or is older than a day")
        if is_approved and is_same_person(proposal.by, by):
            raise RegionNotReset("another person than the one who proposed it has to approve it")
        if is_approved:
            self._give(slot, replace(proposal, approved_by=by))
        RegionProposalFile(self._run_directory, slot).remove()

    def find_answer(self, slot: int, order_id: str) -> RegionStatus | None:
        """Return the region that answers this order; None as long as its worker has not reported that."""
        found = (each.region for each in find_reports(self._run_directory) if each.slot == slot)
        return next((each for each in found if each is not None and each.answered == order_id), None)

    def _service(self) -> int:
        service = find_service(self._run_directory, SystemClock().now()).report
        return 0 if service is None else service.whole.process_id

    def _make(self, slot: int, by: str, **what: Any) -> RegionOrder | None:
        now = SystemClock().now()
        found = find_service(self._run_directory, now)
        workers = found.report.workers if found.report is not None and found.holder is not None else ()
        service = next((each.process_id for _, each in workers if each.slot == slot), None)
        return None if service is None else RegionOrder(service, secrets.token_hex(8), by, at=instant_text(now), **what)

    def _give(self, slot: int, order: RegionOrder, *, is_proposal: bool = False) -> str:
        try:
            (RegionProposalFile if is_proposal else RegionOrderFile)(self._run_directory, slot).give(order)
        except OSError as error:
            problem = f"{self._run_directory}: the order cannot be written: {error.strerror or error}"
            raise RegionNotReset(f"{problem}; free space on the disk, or run the command as the service's user") from error
        return order.id


_log = logging.getLogger("resequencer.sink")


class Attribute(NamedTuple):
    """An attribute: its name for operators, which is the end of its key, the field of the settings, and what it takes."""

    name: str
    field: str
    takes: ValueType

    @property
    def option(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('.', '-')}"


ATTRIBUTES = (
    Attribute("url", "url", MQTT_URL),
    Attribute("qos", "qos", QOS),
    Attribute("notifications.topic", "notifications", TOPIC),
    Attribute("dead-letters.topic", "dead_letters", TOPIC),
)


def values_of(settings: MqttSinkSettings) -> dict[str, Any]:
    """Return the attributes by their names. The server is shown without a login."""
    fields: dict[str, Any] = msgspec.structs.asdict(settings) | {"url": settings.place}
    return {each.name: fields[each.field] for each in ATTRIBUTES}


def with_attributes(settings: MqttSinkSettings, found: SetAttributes | None) -> MqttSinkSettings:
    """Return the settings with the attributes that were set.

    One that was changed from another value than the configured one does not count any more: the configuration was changed
    after it.

    Raises:
        Mismatch: A value is none of the attribute's.
    """
    if found is None:
        return settings
    configured, changes = values_of(settings), []
    for each in ATTRIBUTES:
        change = found.get(each.name)
        if change is None or change.configured != configured[each.name]:
            continue
        settings = replace(settings, **{each.field: each.takes.read(change.value)})
        changes.append(f"{each.name} = {change.value} (configured: {change.configured}), set by {change.by} at {change.at}")
    return replace(settings, changes=f"sink mqtt: {'; '.join(changes)}") if changes else settings


_KEYS = "payment-status-notification.mqtt"
_BEING_RESET = "is being reset, so nothing was changed. Give the order again afterwards"


class SinkNotSet(ResequencerError):
    """The attributes stay as they are."""


class LocalSink:
    """What an operator sees and sets of the sink mqtt. A worker uses it from its next publication on.

    Raises of all calls:
        SinkNotSet: A region is being reset, or the file cannot be read or written. Nothing has changed.
        ConfigurationError: A value is refused.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._run_directory = configuration.notification.run_directory
        self._configured = mqtt_sink_settings(configuration)
        self._file = SinkAttributesFile(self._run_directory)

    def shown(self) -> Sequence[ShownAttribute]:
        """Return all attributes."""
        configured, found = values_of(self._configured), self._find()
        current = values_of(self._with(found))
        return [
            ShownAttribute(
                each.name,
                current[each.name],
                configured[each.name],
                found[each.name].by if current[each.name] != configured[each.name] else None,
                found[each.name].at if current[each.name] != configured[each.name] else None,
                each.takes.expects,
            )
            for each in ATTRIBUTES
        ]

    def set(self, given: Mapping[str, str], by: str) -> Sequence[str]:
        """Set attributes by their names, and return what the person should know."""
        if not given:
            raise ConfigurationError("sink set", f"changes nothing: give one of {', '.join(each.option for each in ATTRIBUTES)}")
        configured, at = values_of(self._configured), instant_text(SystemClock().now())
        wanted = {each: given[each.name] for each in ATTRIBUTES if each.name in given}
        changes = {each.name: Change(configured[each.name], _read(each, text), by, at) for each, text in wanted.items()}
        self._refuse_during_a_reset()
        attributes = {**self._find(), **changes}
        settings = self._with(attributes)
        if settings.notifications == settings.dead_letters:
            problem = f"{settings.notifications} would be the topic of notifications and of dead letters. Name another one"
            raise ConfigurationError("sink set", problem)
        self._store(lambda: self._file.write(attributes))
        lasts = f"this holds until `sink reset`, or until {_KEYS} names another value. Change it there, too"
        return [*(["qos 0 promises nothing: a message that the broker does not get is lost"] if settings.qos == 0 else []), lasts]

    def reset(self) -> None:
        """Go back to what is configured."""
        self._refuse_during_a_reset()
        self._store(self._file.remove)

    def _refuse_during_a_reset(self) -> None:
        """Raise SinkNotSet while a worker resets its region: what is pending would leave by the one or the other."""
        _, service, _ = find_service(self._run_directory, SystemClock().now())
        for state, each in service.workers if service is not None else ():
            if state != NOT_RUNNING and each.region is not None and each.region.state == RegionState.RESETTING:
                raise SinkNotSet(f"the region of worker {each.slot} {_BEING_RESET}")

    def _find(self) -> SetAttributes:
        try:
            return self._file.find() or {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SinkNotSet(f"{self._file.path} cannot be read: {error}; `resequencer sink reset` removes it") from error

    def _with(self, found: SetAttributes) -> MqttSinkSettings:
        try:
            return with_attributes(self._configured, found)
        except Mismatch as error:
            raise SinkNotSet("the stored attributes are damaged; `resequencer sink reset` removes them") from error

    def _store(self, store: Callable[[], object]) -> None:
        try:
            store()
        except OSError as error:
            problem = f"{self._file.path} cannot be written: {error.strerror or error}"
            raise SinkNotSet(f"{problem}; make room, or run the command as the service's user") from error


def _read(attribute: Attribute, text: str) -> str | int:
    try:
        value = attribute.takes.read(text)
        if attribute.name == "url" and urlsplit(text).username is not None:
            raise ConfigurationError(attribute.option, f"has a login, which others could read; set {_KEYS}.user and password")
    except (Mismatch, ValueError):
        raise ConfigurationError(attribute.option, f"is refused; expected: {attribute.takes.expects}") from None
    return value if isinstance(value, int) else str(value)


class CurrentSettings:
    """Returns the settings of the sink that count now, for the worker of a slot; None: for a command.

    Raises of the call:
        TransportRefused: The file cannot be read, or is damaged.
    """

    def __init__(self, configuration: Configuration, slot: int | None) -> None:
        self._configured = mqtt_sink_settings(configuration, slot)
        self._file = SinkAttributesFile(configuration.notification.run_directory)
        self._seen: tuple[int, int, int] | None = None
        self._current = self._configured

    def __call__(self) -> MqttSinkSettings:
        try:
            seen = _signature(self._file.path)
            if seen != self._seen:
                self._take(with_attributes(self._configured, self._file.find() if seen is not None else None))
                self._seen = seen
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}. Let the service's user read it"
            raise TransportRefused(str(self._file.path), problem) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, Mismatch) as error:
            problem = "is damaged. To continue with what is configured: `resequencer sink reset`"
            raise TransportRefused(str(self._file.path), problem) from error
        return self._current

    def _take(self, settings: MqttSinkSettings) -> None:
        if settings != self._current:
            _log.warning("%s", settings.changes or "sink mqtt: its attributes are as configured")
        self._current = settings


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the file is replaced; None without a file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


class _Client(NamedTuple):
    """The client of a kind of broker that only some services need."""

    module: str
    extra: str


_CLIENTS = {"jms": _Client("proton", "jms"), "xms": _Client("proton", "jms"), "mqtt": _Client("paho", "mqtt")}


def make_region_transport(configuration: Configuration, wait: Wait, slot: int) -> RegionTransport:
    """Make the transport of a worker's slot. Nothing is connected yet."""
    source = _make_source(configuration, wait, slot)
    sinks = {each.value: _make_sink(configuration, each, slot) for each in sinks_of(configuration)}
    return RegionTransport(source, routes_of(sinks), configuration.ingress.transport.value)


def find_unusable_clients(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Return a refusal for each key that names a kind, or the bridge's source, whose client is not installed."""
    yield from _unusable_clients_of_bridge(configuration)
    places = [(path_of(Ingress, "transport"), configuration.ingress.transport)]
    places += [(path_of(Notifications, "transport"), each) for each in sinks_of(configuration)]
    yield from _unusable_clients(places)


def refuse_unusable_bridge(configuration: Configuration) -> None:
    """Raise ConfigurationRefused if the client of the bridge's source is not installed."""
    if problems := list(_unusable_clients_of_bridge(configuration)):
        raise ConfigurationRefused(problems)


def _unusable_clients_of_bridge(configuration: Configuration) -> Iterator[ConfigurationError]:
    if configuration.bridge.is_enabled:
        yield from _unusable_clients([(path_of(BridgeSettings, "source"), configuration.bridge.source)])


def _unusable_clients(places: Iterable[tuple[str, str]]) -> Iterator[ConfigurationError]:
    for key, kind in places:
        if kind in _CLIENTS and find_spec((client := _CLIENTS[kind]).module) is None:
            remedy = f"install it by `make setup-jms`, or pip install '.[{client.extra}]'"
            yield ConfigurationError(key, f"is {kind}, whose client is not installed; {remedy}")


def _make_source(configuration: Configuration, wait: Wait, slot: int) -> Source:
    kind = configuration.ingress.transport
    if kind is TransportType.KAFKA:
        from notification_service.connectors.kafka.sink import KafkaSource  # Imported here, which takes a third of a second.

        return KafkaSource(kafka_source_settings(configuration, slot), SystemClock())
    if kind is TransportType.JMS:
        from notification_service.connectors.jms.source import JmsSource  # Imported here: its client may not be installed.

        return JmsSource(jms_source_settings(configuration, slot))
    return FileSource(file_settings(configuration), wait, SystemFiles())


def _make_sink(configuration: Configuration, kind: TransportType, slot: int) -> Sink:
    if kind is TransportType.KAFKA:
        from notification_service.connectors.kafka.sink import KafkaSink  # Imported here, which takes a third of a second.

        return KafkaSink(kafka_sink_settings(configuration), SystemClock())
    if kind is TransportType.JMS:
        from notification_service.connectors.jms.sink import JmsSink  # Imported here: its client may not be installed.

        return JmsSink(jms_sink_settings(configuration), SystemClock())
    if kind is TransportType.XMS:
        from notification_service.connectors.jms.sink import XmsSink  # Imported here: its client may not be installed.

        return XmsSink(xms_sink_settings(configuration), SystemClock())
    if kind is TransportType.MQTT:
        from notification_service.connectors.mqtt.sink import MqttSink  # Imported here: its client may not be installed.

        return MqttSink(CurrentSettings(configuration, slot), SystemClock())
    return FileSink(file_settings(configuration), SystemFiles())


def make_topic_export(configuration: Configuration) -> TopicExport:
    """Make the export of the topics that are in force now. Nothing is connected yet."""
    client_id = f"{configuration.storage.namespace}-verify"
    return TopicExport(
        CurrentSettings(configuration, None)(), client_id, configuration.notification.run_directory / "verify-mqtt"
    )


def subscribe_for_verify(configuration: Configuration) -> None:
    """Let the broker keep what the sink mqtt publishes from now on, if there is such a sink.

    Raises: as `TopicExport.subscribe`.
    """
    if TransportType.MQTT in sinks_of(configuration):
        with closing(make_topic_export(configuration)) as export:
            export.subscribe()
