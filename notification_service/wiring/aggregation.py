"""Makes stores, aggregation workers and their views from the configuration."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec.structs import replace

from notification_service.aggregation.atomic_store import Apply, AtomicKVStore, OnValue, UsersAggregate
from notification_service.aggregation.commands import CommandWriter, FileCommands
from notification_service.aggregation.completions import CompletionsLog, FileCompletions
from notification_service.aggregation.core import Aggregate
from notification_service.aggregation.files import FileStore, ValuesFile
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.port import Store
from notification_service.aggregation.runner import AggregationWorker, StoreReport, StoreRunner
from notification_service.aggregation.settings import PAYMENTS, AggregationSettings, StoreSettings
from notification_service.aggregation.view import FileView, StoreView, ValueChange
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import TransportType
from notification_service.configuration.transports import kafka_settings
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.kafka.core.client_options import KEPT_FOR_EVER, KafkaTopics
from notification_service.status.aggregation import AggregationReport, StoreStatus, aggregation_file
from notification_service.status.file import SideFile
from notification_service.supervision.locks import RunLock
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock, passed_ms, steady_clock
from notification_service.wiring.working_directory import see_working_directory
from resequencer.clock import Clock, SteadyClock, instant_text
from resequencer.errors import ConfigurationError
from resequencer.users_code import import_callable

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from notification_service.connectors.kafka.settings import KafkaSettings


_STORES = path_of(AggregationSettings, "stores")
VALUES, COMPLETIONS = "values.db", "completions"

VALUES_CONFIGURATION = {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
COMPLETIONS_CONFIGURATION = {"cleanup.policy": "delete"}
"""For how long is the brokers' default, until an operator sets what suits the readers."""


class StoreNames(NamedTuple):
    """The topics of a store, and its directories where the transport is files."""

    name: str
    commands: str
    values: str
    completions: str
    dead_letters: str
    in_directory: Path
    directory: Path

    @property
    def made(self) -> tuple[str, ...]:
        """The topics that a worker makes if they are missing."""
        return (self.values,) if self.name == PAYMENTS else (self.values, self.completions, self.dead_letters)


def payments_store(configuration: Configuration) -> StoreNames:
    """Return the store of the payments of messages."""
    settings = configuration.aggregation
    return StoreNames(
        PAYMENTS,
        settings.facts_topic,
        settings.values_topic,
        settings.reports_topic,
        settings.dead_letters_topic,
        settings.facts_directory,
        settings.directory / PAYMENTS,
    )


def stores_of(configuration: Configuration) -> Iterator[StoreNames]:
    """Yield the stores of an aggregation worker: that of the payments of messages, if any come, and users' own."""
    settings = configuration.aggregation
    directory = settings.directory
    if configuration.counts_payments:
        yield payments_store(configuration)
    for name, _ in settings.stores:
        topics = (f"{name}-commands", f"{name}-store", f"{name}-completions", f"{name}-dead-letters")
        yield StoreNames(name, *topics, directory / name / "commands", directory / name)


def make_aggregate(configuration: Configuration, name: str) -> Aggregate:
    """Return how the commands of a store change its values.

    Raises:
        ConfigurationError: A user's own callable cannot be imported.
    """
    settings = configuration.aggregation
    if name == PAYMENTS:
        return PaymentsOfMessage(
            PaymentsSettings(
                frozenset(settings.final_statuses),
                settings.amend_after_ms,
                settings.deadline_ms,
                settings.retention_ms,
                settings.ended_retention_ms,
                settings.target_type,
            )
        )
    return _users_aggregate(name, dict(settings.stores)[name])


def find_unusable(configuration: Configuration, name: str) -> list[ConfigurationError]:
    """Import the callables of a user's own store; return what is wrong with each of them."""
    see_working_directory()
    problems = []
    for find in (_apply_of, _on_value_of):
        try:
            find(name, dict(configuration.aggregation.stores)[name])
        except ConfigurationError as error:
            problems.append(error)
    return problems


def open_store(configuration: Configuration, names: StoreNames, slot: int, stop: StopSignal, clock: SteadyClock) -> Store:
    """Open a store for the worker in this slot, with its clock. On topics nothing is connected yet, but topics may be made.

    Raises:
        TransportUnavailable, TransportRefused: The brokers do not answer, or a topic is missing and cannot be made.
    """
    if configuration.notification.transport is TransportType.FILE:
        return FileStore(FileTransport(_file_settings(configuration, names), stop.wait), names.directory / VALUES)
    from notification_service.aggregation.kafka_store import KafkaStore
    from notification_service.connectors.kafka.topics import make_topics

    settings = store_settings(configuration, names, slot)
    if names.name != PAYMENTS:
        make_topics(settings, names.commands, {names.completions: COMPLETIONS_CONFIGURATION, names.dead_letters: KEPT_FOR_EVER})
    make_topics(settings, names.commands, {names.values: VALUES_CONFIGURATION})
    return KafkaStore(settings, worker_directory(names, slot), clock)


def lock_store(names: StoreNames, slot: int) -> RunLock:
    """Lock the local copies of a worker's values: no other process may write them.

    Raises:
        AlreadyRunning: Another process has them.
    """
    lock = RunLock(worker_directory(names, slot), is_private=True)
    lock.acquire()
    return lock


def worker_directory(names: StoreNames, slot: int) -> Path:
    return names.directory / f"worker-{slot}"


def open_view(configuration: Configuration, names: StoreNames, directory: Path) -> StoreView:
    """Open the view of a store. On topics it reads the values into files in `directory`, which is this view's alone.

    Raises:
        TransportUnavailable, TransportRefused: The brokers do not answer, or the topic is missing.
    """
    if configuration.notification.transport is TransportType.FILE:
        return FileView(ValuesFile(names.directory / VALUES, is_copy=False))

    from notification_service.aggregation.kafka_view import TopicView
    from notification_service.connectors.kafka.topics import Right, Topics

    looked = _values_settings(configuration, names)
    with closing(Topics(looked, Right.READ)) as topics:
        partitions = topics.look().partitions
    return TopicView(looked, directory, partitions, SteadyClock(SystemClock().now, passed_ms))


def open_copies(configuration: Configuration, names: StoreNames, directory: Path) -> StoreView:
    """Open a second view of what the view of `open_view` with this directory has read. Nothing is connected."""
    if configuration.notification.transport is TransportType.FILE:
        return FileView(ValuesFile(names.directory / VALUES, is_copy=False))
    from notification_service.aggregation.kafka_view import CopiedView

    return CopiedView(directory)


def find_changes(configuration: Configuration, names: StoreNames, key: str, limit: int) -> Sequence[ValueChange] | None:
    """Return the last changes of a key that the topic of values still has, the latest first; None: files keep none.

    Raises:
        TransportUnavailable, TransportRefused: The brokers do not answer, or the topic is missing.
    """
    if configuration.notification.transport is TransportType.FILE:
        return None
    from notification_service.aggregation import kafka_view

    return kafka_view.find_changes(_values_settings(configuration, names), key, limit)


def _values_settings(configuration: Configuration, names: StoreNames) -> "KafkaSettings":
    """Return the settings to read the values of a store."""
    settings = store_settings(configuration, names, 0)
    return replace(settings, topics=replace(settings.topics, input=names.values))


def open_completions(configuration: Configuration, names: StoreNames) -> CompletionsLog:
    """Open the completions of a store, with values if it is a user's own. Nothing is connected before the first call."""
    has_values = names.name != PAYMENTS
    if configuration.notification.transport is TransportType.FILE:
        return FileCompletions(names.directory / f"{COMPLETIONS}.jsonl", SystemFiles(), has_values=has_values)
    from notification_service.aggregation.kafka_view import TopicCompletions

    return TopicCompletions(store_settings(configuration, names, 0), has_values=has_values)


def open_commands(configuration: Configuration, names: StoreNames) -> CommandWriter:
    """Open where commands are given. Nothing is connected before the first."""
    if configuration.notification.transport is TransportType.FILE:
        return FileCommands(names.in_directory)
    from notification_service.aggregation.kafka_store import TopicCommands

    return TopicCommands(store_settings(configuration, names, 0))


def store_settings(configuration: Configuration, names: StoreNames, slot: int) -> "KafkaSettings":
    """Return the settings to read the commands of a store and to write what comes of them."""
    settings = kafka_settings(configuration, slot)
    service = settings.transactional_id.split(".")[-2]
    consumer = {name: value for name, value in settings.consumer.items() if name != "group_instance_id"}
    group = f"{configuration.storage.namespace}-{names.name}"
    return replace(
        settings,
        topics=KafkaTopics(names.commands, names.completions, names.dead_letters, values=names.values),
        consumer={**consumer, "group_id": group},
        producer={**settings.producer, "transactional_id": f"{group}.{service}.{slot}"},
        begins_at_earliest=True,
    )


def _file_settings(configuration: Configuration, names: StoreNames) -> FileSettings:
    return FileSettings(
        names.commands,
        names.in_directory,
        names.directory,
        configuration.ingress.max_record_bytes,
        notifications_name=COMPLETIONS,
        written_by=configuration.notification.output_directory / "positions.json" if names.name == PAYMENTS else None,
    )


def _users_aggregate(name: str, settings: StoreSettings) -> UsersAggregate:
    see_working_directory()
    return UsersAggregate(_apply_of(name, settings), _on_value_of(name, settings))


def _apply_of(name: str, settings: StoreSettings) -> Apply:
    assert settings.apply is not None, "the configuration was checked"
    return cast(Apply, import_callable(settings.apply, f"{_STORES}.{name}.apply", "a callable of head, member and command"))


def _on_value_of(name: str, settings: StoreSettings) -> OnValue | None:
    if settings.on_value is None:
        return None
    return cast(OnValue, import_callable(settings.on_value, f"{_STORES}.{name}.on-value", "a callable of key, old and new"))


@contextmanager
def open_atomic_store(configuration: Path, name: str, overrides: Sequence[str] = ()) -> Iterator[AtomicKVStore]:
    """Open `aggregation.stores.NAME` of a configuration file, that of the service, for a `with` block.

    Paths of the configuration are below the working directory, as for the service. Nothing is connected before the first call.

    Raises:
        ConfigurationRefused, ConfigurationError: The configuration is refused, or has no such store.
    """
    read = load(configuration, overrides)
    names = next((each for each in stores_of(read) if each.name == name != PAYMENTS), None)
    if names is None or not read.aggregation.is_enabled:
        known = ", ".join(each for each, _ in read.aggregation.stores) or "none"
        problem = f"has no store {name!r:.80}; it has {known}. Name it, and set aggregation.enabled = true"
        raise ConfigurationError(path_of(AggregationSettings, "stores"), problem)
    with (
        TemporaryDirectory(prefix="store-") as directory,
        closing(AtomicKVStore(open_commands(read, names), lambda: open_view(read, names, Path(directory)))) as store,
    ):
        yield store


def make_worker(configuration: Configuration, slot: int, stop: StopSignal) -> AggregationWorker:
    """Return the worker of a slot; nothing is connected yet. Its directories are its own until the process ends.

    Raises:
        ConfigurationError: A user's own callable cannot be imported.
        AlreadyRunning: Another process is the worker of this slot.
    """
    run_directory, trusted_ms = configuration.notification.run_directory, configuration.clock_trusted_after_ms
    clock = steady_clock(run_directory, f"aggregation-{slot}", trusted_ms, keeps=True)
    runners = []
    for names in stores_of(configuration):
        lock_store(names, slot)
        opened = partial(open_store, configuration, names, slot, stop, clock)
        runners.append(StoreRunner(names.name, make_aggregate(configuration, names.name), opened, clock, stop.wait))
    return AggregationWorker(runners, stop.wait)


def make_report(configuration: Configuration, slot: int) -> Callable[[Sequence[StoreReport]], None]:
    """Return what the worker in this slot reports by."""
    return partial(_report, aggregation_file(configuration.notification.run_directory, slot), SystemClock())


def _report(file: SideFile[AggregationReport], clock: Clock, stores: Sequence[StoreReport]) -> None:
    statuses = tuple(map(_store_status, stores))
    problem = next((f"store {each.store}: {each.problem}" for each in statuses if each.problem is not None), None)
    file.write(AggregationReport(os.getppid(), os.getpid(), instant_text(clock.now()), problem, statuses))


def _store_status(report: StoreReport) -> StoreStatus:
    return StoreStatus(
        report.name,
        tuple(sorted(map(str, report.behind))),
        None if report.problem is not None or report.untaken else sum(report.behind.values()),
        report.applied,
        report.completed,
        report.dead_letters,
        report.problem,
        report.notes,
        report.untaken,
        instant_text(report.pending_since),
    )
