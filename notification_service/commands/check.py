"""`resequencer check`: validates the configuration and prints the effective one."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

from notification_service.aggregation.settings import AggregationSettings
from notification_service.bridge.settings import SourceKind, StartKind
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.resolution import EffectiveValue
from notification_service.configuration.schema import ConfigurationRefused, path_of
from notification_service.configuration.sections import Ingress, Notifications, Storages, TransportType
from notification_service.configuration.storages import storage_kind
from notification_service.configuration.transports import (
    is_region,
    jms_sink_settings,
    jms_source_settings,
    kafka_settings,
    kafka_sink_settings,
    kafka_source_settings,
    mqtt_source_settings,
    sinks_of,
    xms_sink_settings,
    xms_source_settings,
)
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.aggregation import store_settings, stores_of
from notification_service.wiring.composition import refuse_unusable
from notification_service.wiring.regions import CurrentSettings
from resequencer.errors import ConfigurationError, ResequencerError, TransientError


def bridge_is_usable(configuration: Configuration) -> None:
    """Check the broker of the bridge's source, the login, and the right to its topics or its queue. No message is taken.

    The session of a bridge that runs is not touched.

    Raises:
        TransportUnavailable, TransportRefused: As the bridge would meet them.
    """
    if not configuration.bridge.is_enabled:
        return
    if configuration.bridge.source is SourceKind.MQTT:
        from notification_service.connectors.mqtt.preflight import preflight_source

        preflight_source(mqtt_source_settings(configuration))
    else:
        from notification_service.connectors.jms.preflight import preflight_queue

        preflight_queue(xms_source_settings(configuration))


def start_is_usable(configuration: Configuration) -> None:
    """Check the topic to which the bridge appends, and the right to write it. The directory of files is among the directories.

    Raises:
        ExceptionGroup: The topic or the right is missing; it holds one TransportWithheld.
        TransportUnavailable, TransportRefused: As the bridge would meet them.
    """
    bridge = configuration.bridge
    if bridge.is_enabled and bridge.start is StartKind.KAFKA:
        from notification_service.connectors.kafka.preflight import preflight_start

        preflight_start(kafka_source_settings(configuration))


Probe = Callable[[Configuration], Sequence[str] | None]
"""Tries one thing that the service will need, and changes nothing; returns what the user should know, a sentence each.

Raises a `TransientError`, a `StorageRefused`, a `TransportRefused` or an `OSError` that says what is out of reach, or a
group of them.
"""


def directories_are_usable(configuration: Configuration) -> Sequence[str]:
    """Check the directories that the service reads or writes. None is made: of a missing one its nearest parent is checked.

    Raises:
        ExceptionGroup: It holds one ConfigurationError for each that cannot be used, but for those below another one.
    """
    problems: dict[Path, ConfigurationError] = {}
    for key, directory, rights in _directories(configuration):
        if not any(directory.is_relative_to(each) for each in problems):
            existing = next(each for each in (directory, *directory.absolute().parents) if os.path.exists(each))
            why = "not a directory" if not existing.is_dir() else _denied(existing, rights if existing == directory else os.W_OK)
            if why:
                text = (
                    f"{directory} cannot be used: {existing} is {why}; make it usable for the service, or name another directory"
                )
                problems[directory] = ConfigurationError(key, text)
    if problems:
        raise ExceptionGroup("refused", list(problems.values()))
    ingress, run_directory = configuration.ingress, configuration.notification.run_directory
    directory = ingress.file_directory
    if ingress.transport is not TransportType.FILE or directory.exists() or directory.is_relative_to(run_directory):
        return ()
    return (f"{path_of(Ingress, 'file_directory')}: {directory} does not exist; a start makes it, empty",)


def _directories(configuration: Configuration) -> Iterator[tuple[str, Path, int]]:
    """Yield each directory with its key, and with the rights that are needed of it (access(2)). The run directory is first."""
    ingress, notification, aggregation = configuration.ingress, configuration.notification, configuration.aggregation
    bridge = configuration.bridge
    yield path_of(Notifications, "run_directory"), notification.run_directory, os.W_OK
    yield path_of(Notifications, "output_directory"), notification.output_directory, os.W_OK
    file = configuration.storage.embedded_file
    if storage_kind(configuration).find_file is not None and os.path.exists(file.parent):  # The storage reports a missing one.
        yield path_of(Storages, "embedded_file"), file.parent, os.W_OK
    if configuration.counts_payments and notification.transport is TransportType.FILE:
        yield path_of(AggregationSettings, "facts_directory"), aggregation.facts_directory, os.W_OK
    if aggregation.worker_count:
        yield path_of(AggregationSettings, "directory"), aggregation.directory, os.W_OK
    is_read, is_archived = ingress.transport is TransportType.FILE, ingress.archive_every_ms is not None
    is_written = is_archived or (bridge.is_enabled and bridge.start is StartKind.FILE)
    if is_read or is_written:
        rights = (os.R_OK if is_read else 0) | (os.W_OK if is_written else 0)
        yield path_of(Ingress, "file_directory"), ingress.file_directory, rights
    if is_archived:
        yield path_of(Ingress, "archive_directory"), ingress.archive_directory, os.W_OK


def _denied(directory: Path, rights: int) -> str | None:
    """Return what cannot be done with a directory, None if all of the rights are there."""
    denied = ((os.R_OK, "not readable"), (os.W_OK, "not writable"))
    return next((why for right, why in denied if rights & right and not os.access(directory, right | os.X_OK)), None)


def storage_is_usable(configuration: Configuration) -> Sequence[str]:
    """Check the storage as a takeover does, but make and take over nothing."""
    return storage_kind(configuration).preflight(configuration)


def kafka_is_usable(configuration: Configuration) -> Sequence[str]:
    """Check the topics and the group's positions as a takeover does, but take nothing over.

    Raises:
        ExceptionGroup: Topics or rights are missing; it holds one TransportWithheld for each.
        TransportUnavailable, TransportRefused: As the service would meet them.
    """
    is_source = configuration.ingress.transport is TransportType.KAFKA
    is_sink = TransportType.KAFKA in sinks_of(configuration)
    if not (is_source or is_sink):
        return ()
    from notification_service.connectors.kafka.preflight import (  # Imported here: the client takes a third of a second.
        preflight,
        preflight_sink,
    )

    # Of fixed partitions the configuration itself says that there are too few.
    workers = 1 if configuration.ingress.kafka_partitions else configuration.worker_count
    if not is_region(configuration):
        return preflight(kafka_settings(configuration), workers)
    problems: list[Exception] = []
    notes: Sequence[str] = ()
    try:
        if is_source:
            notes = preflight(kafka_source_settings(configuration), workers)
    except (ExceptionGroup, ResequencerError) as error:
        problems += _each(error)
    try:
        if is_sink:
            preflight_sink(kafka_sink_settings(configuration))
    except (ExceptionGroup, ResequencerError) as error:
        problems += _each(error)
    if problems:
        raise ExceptionGroup("refused", problems)
    return notes


def jms_is_usable(configuration: Configuration) -> None:
    """Check the queues, the selectors and the rights at the brokers of source and sinks.

    Raises:
        ExceptionGroup: Something is missing or refused; it holds one error for each queue.
        TransportUnavailable, TransportRefused: As the service would meet them.
    """
    is_source = configuration.ingress.transport is TransportType.JMS
    sinks = sinks_of(configuration)
    if not (is_source or TransportType.JMS in sinks or TransportType.XMS in sinks):
        return
    from notification_service.connectors.jms import preflight  # Imported here: the client may not be installed.

    tries: list[Callable[[], None]] = []
    if is_source:
        tries.append(lambda: preflight.preflight_source(jms_source_settings(configuration)))
    if TransportType.JMS in sinks:
        tries.append(lambda: preflight.preflight_sink(jms_sink_settings(configuration)))
    if TransportType.XMS in sinks:
        tries.append(lambda: preflight.preflight_xms_sink(xms_sink_settings(configuration)))
    problems: list[Exception] = []
    for each in tries:
        try:
            each()
        except (ExceptionGroup, ResequencerError) as error:
            problems += _each(error)
    if problems:
        raise ExceptionGroup("refused", problems)


def mqtt_is_usable(configuration: Configuration) -> Sequence[str]:
    """Check the broker of a sink, with the attributes that are in force. Whether it may publish is not known before it does.

    Raises:
        TransportUnavailable, TransportRefused: As the service would meet them.
    """
    if TransportType.MQTT not in sinks_of(configuration):
        return ()
    from notification_service.connectors.mqtt.preflight import preflight_sink  # Imported here: the client may not be installed.

    settings = CurrentSettings(configuration, None)()
    preflight_sink(settings)
    return () if settings.changes is None else (settings.changes,)


def ledger_is_usable(configuration: Configuration) -> None:
    """Connect to the ledger of delivery, if a receiver uses it. A missing file is no error: the delivery worker makes it.

    Raises:
        LedgerUnavailable, LedgerRefused: As a delivery worker would meet them.
    """
    delivery = configuration.delivery
    if not delivery.of_ledger or (delivery.ledger.url is None and not delivery.ledger.file.exists()):
        return
    from notification_service.wiring.delivery import make_ledger

    with closing(make_ledger(configuration)) as ledger:
        ledger.database.check()


def topics_of_delivery_are_usable(configuration: Configuration) -> None:
    """Check the topics of the receivers that use the ledger, and those of schedules.

    Whatever is written together with an offset of its topic may also be read: brokers demand both rights for that. The other
    receivers wait for their topics, and tell in `status` what is missing.

    Raises:
        ExceptionGroup: Topics or rights are missing; it holds one TransportWithheld for each.
        TransportUnavailable, TransportRefused: As a delivery worker would meet them.
    """
    delivery, notifications = configuration.delivery, configuration.notification.topic
    if configuration.notification.transport is not TransportType.KAFKA:
        return
    events = {notifications: delivery.events_topic, delivery.events_topic: delivery.events_topic} if delivery.of_ledger else {}
    requests = {each.topic: each.topic for _, each in delivery.schedules if each.topic}
    if events or requests:
        from notification_service.connectors.kafka.preflight import preflight_topics

        preflight_topics(kafka_settings(configuration), [*events.items(), *requests.items()])


def topics_of_stores_are_usable(configuration: Configuration) -> Sequence[str]:
    """Check the topics and groups of the payments of messages, and of users' own stores, if aggregation workers run here.

    Raises:
        ExceptionGroup: Topics or rights are missing; it holds one TransportWithheld for each.
        TransportUnavailable, TransportRefused: As an aggregation worker would meet them.
    """
    if configuration.notification.transport is not TransportType.KAFKA or not configuration.aggregation.worker_count:
        return ()
    from notification_service.connectors.kafka.preflight import preflight_store

    notes: list[str] = []
    for names in stores_of(configuration):
        notes += preflight_store(store_settings(configuration, names, 0), names.made)
    return notes


PROBES: tuple[Probe, ...] = (
    directories_are_usable,
    storage_is_usable,
    kafka_is_usable,
    jms_is_usable,
    mqtt_is_usable,
    bridge_is_usable,
    start_is_usable,
    ledger_is_usable,
    topics_of_delivery_are_usable,
    topics_of_stores_are_usable,
)
"""Beside reading the settings and importing what the configuration names."""


class Surroundings(NamedTuple):
    """The findings as sentences: what a person must fix, what is unavailable and may come back, and what the user should know."""

    refused: tuple[str, ...]
    unreachable: tuple[str, ...]
    remarks: tuple[str, ...]


def look_around(configuration: Configuration) -> Surroundings:
    """Check everything at the same time, so that a server without an answer does not delay the others."""
    refused: list[str] = []
    unreachable: list[str] = []
    remarks: list[str] = []
    with ThreadPoolExecutor(len(PROBES)) as pool:
        for probe in [pool.submit(each, configuration) for each in PROBES]:
            try:
                remarks.extend(probe.result() or ())
            except OSError as error:
                refused.append(f"{error.filename or configuration.file}: {error.strerror or error}")
            except (ExceptionGroup, ResequencerError) as error:
                for each in _each(error):
                    (unreachable if isinstance(each, TransientError) else refused).append(str(each))
    return Surroundings(tuple(refused), tuple(unreachable), tuple(remarks))


def _each(error: Exception) -> Iterable[Exception]:
    return error.exceptions if isinstance(error, ExceptionGroup) else (error,)


_DISTRIBUTION = "resequencer"
_PACKAGES = ("resequencer", "guardian", "storage", "notification_service")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--connect", action="store_true", help="also try the directories and servers of the configuration")
    parser.add_argument("--changed", action="store_true", help="show only the values that are no defaults")


def check(arguments: Namespace) -> ExitCode:
    """Print the effective configuration, or with --json one object. A refusal is raised; with --json it is printed before."""
    try:
        _refuse_shared_packages()
        configuration = load(arguments.config, arguments.overrides)
        notes = refuse_unusable(configuration)
    except ConfigurationError as error:
        if arguments.json:
            _print_json({"valid": False, "problems": _problems(error)})
        raise
    found = look_around(configuration) if arguments.connect else Surroundings((), (), ())
    unreachable = (*found.refused, *found.unreachable)
    notes = (*configuration.warnings, *notes, *found.remarks)
    shown = [each for each in configuration.effective if each.is_changed or not arguments.changed]
    if arguments.json:
        _print_json(_report(configuration.file, shown, unreachable, notes))
    else:
        first = f"# {configuration.file} is valid. Each value that is not a default shows where it was set."
        sys.stdout.write("\n".join([first, *(f"# note: {note}" for note in notes), *map(str, shown)]) + "\n")
    for problem in unreachable:
        sys.stderr.write(f"resequencer: {problem}\n")
    return ExitCode.OUT_OF_REACH if unreachable else ExitCode.DONE


def _refuse_shared_packages() -> None:
    """Refuse a package of ours that another distribution has, too: both write into one directory, and some files are theirs."""
    installed = packages_distributions()
    for name in _PACKAGES:
        others = sorted(set(installed.get(name, ())) - {_DISTRIBUTION})
        if others:
            problem = f"{', '.join(others)} installs a package of this name, too, and both overwrite each other's files"
            raise ConfigurationError(f"package {name}", f"{problem}; install the service into an environment of its own")


def _problems(error: ConfigurationError) -> list[dict[str, str]]:
    problems = error.problems if isinstance(error, ConfigurationRefused) else (error,)
    return [{"path": each.path, "problem": each.problem, **_place(each.place)} for each in problems]


def _report(file: Path, shown: Iterable[EffectiveValue], unreachable: Sequence[str], notes: Sequence[str]) -> dict[str, object]:
    return {
        "valid": True,
        "file": str(file),
        "warnings": [*notes],
        "unreachable": [*unreachable],
        "keys": {each.path: {"value": each.value, "layer": each.layer, **_place(each.place)} for each in shown},
    }


def _place(place: str | None) -> dict[str, str]:
    return {} if place is None else {"place": place}


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
