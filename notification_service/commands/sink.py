"""`resequencer sink show | set | reset`: the attributes of the sink mqtt, which can be changed while the service runs."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from guardian.region import RegionState
from notification_service.commands.command import Subcommand, add_subcommands, load_for
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Notifications, TransportType
from notification_service.configuration.transports import mqtt_sink_settings, sinks_of
from notification_service.connectors.mqtt.settings import MqttSinkSettings
from notification_service.status.service_report import NOT_RUNNING
from notification_service.status.sink_attributes import Change, SetAttributes, SinkAttributesFile
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import sign
from notification_service.wiring.regions import ATTRIBUTES, Attribute, values_of, with_attributes
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.keys.value_types import Mismatch
from resequencer.printable import printable

_KEYS = "payment-status-notification.mqtt"
_BEING_RESET = "is being reset, so nothing was changed. Give the order again afterwards"


class SinkNotSet(ResequencerError):
    """The attributes stay as they are."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `sink`."""
    add_subcommands(
        parser,
        Subcommand("show", "server, qos and topics that are in force, and what is configured"),
        Subcommand("set", "change some of them: from the next publication on, and after each reset and start", _add_set),
        Subcommand("reset", "go back to what is configured"),
        is_required=True,
    )


def sink(arguments: Namespace) -> ExitCode:
    """Run `resequencer sink show | set | reset`.

    Raises:
        ConfigurationError: The service has no sink mqtt, or a value is refused.
        SinkNotSet: A region is being reset, or the file cannot be read or written. Nothing has changed.
    """
    configuration = load_for(arguments)
    if TransportType.MQTT not in sinks_of(configuration):
        problem = "names no mqtt: only the attributes of that sink can be changed"
        raise ConfigurationError(path_of(Notifications, "transport"), problem)
    file = SinkAttributesFile(configuration.notification.run_directory)
    if arguments.subcommand == "set":
        _set(arguments, configuration, file)
    elif arguments.subcommand == "reset":
        _refuse_during_a_reset(configuration)
        _store(file, file.remove)
    _show(configuration, file, as_json=arguments.json)
    return ExitCode.DONE


def _set(arguments: Namespace, configuration: Configuration, file: SinkAttributesFile) -> None:
    given = {each: text for each in ATTRIBUTES if (text := getattr(arguments, each.field)) is not None}
    if not given:
        raise ConfigurationError("sink set", f"changes nothing: give one of {', '.join(each.option for each in ATTRIBUTES)}")
    configured, who = values_of(mqtt_sink_settings(configuration)), sign()
    changes = {each.name: Change(configured[each.name], _read(each, text), who.by, who.at) for each, text in given.items()}
    _refuse_during_a_reset(configuration)
    attributes = {**_find(file), **changes}
    settings = _with(configuration, attributes)
    if settings.notifications == settings.dead_letters:
        problem = f"{settings.notifications} would be the topic of notifications and of dead letters. Name another one"
        raise ConfigurationError("sink set", problem)
    _store(file, lambda: file.write(attributes))
    if settings.qos == 0:
        sys.stderr.write("resequencer: qos 0 promises nothing: a message that the broker does not get is lost\n")
    sys.stderr.write(f"resequencer: this holds until `sink reset`, or until {_KEYS} names another value. Change it there, too\n")


def _read(attribute: Attribute, text: str) -> str | int:
    try:
        value = attribute.takes.read(text)
        if attribute.name == "url" and urlsplit(text).username is not None:
            raise ConfigurationError(attribute.option, f"has a login, which others could read; set {_KEYS}.user and password")
    except (Mismatch, ValueError):
        raise ConfigurationError(attribute.option, f"is refused; {attribute.takes.expects} is expected") from None
    return value if isinstance(value, int) else str(value)


def _refuse_during_a_reset(configuration: Configuration) -> None:
    """Raise SinkNotSet while a worker resets its region: what is pending would leave by the one or the other."""
    _, service, _ = find_service(configuration.notification.run_directory, SystemClock().now())
    for state, each in service.workers if service is not None else ():
        if state != NOT_RUNNING and each.region is not None and each.region.state == RegionState.RESETTING:
            raise SinkNotSet(f"the region of worker {each.slot} {_BEING_RESET}")


def _find(file: SinkAttributesFile) -> SetAttributes:
    try:
        return file.find() or {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SinkNotSet(f"{file.path} cannot be read: {error}; `resequencer sink reset` removes it") from error


def _with(configuration: Configuration, found: SetAttributes) -> MqttSinkSettings:
    try:
        return with_attributes(mqtt_sink_settings(configuration), found)
    except Mismatch as error:
        raise SinkNotSet("the stored attributes are damaged; `resequencer sink reset` removes them") from error


def _store(file: SinkAttributesFile, store: Callable[[], object]) -> None:
    try:
        store()
    except OSError as error:
        problem = f"{file.path} cannot be written: {error.strerror or error}; make room, or run the command as the service's user"
        raise SinkNotSet(problem) from error


def _show(configuration: Configuration, file: SinkAttributesFile, *, as_json: bool) -> None:
    """Print what is in force. A worker uses it from its next publication on."""
    configured, found = values_of(mqtt_sink_settings(configuration)), _find(file)
    current = values_of(_with(configuration, found))
    if as_json:
        told = {name: {"value": current[name], "configured": configured[name]} for name in configured}
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    for name, value in current.items():
        is_configured = value == configured[name]
        where = "as configured" if is_configured else f"set by {found[name].by}; configured: {configured[name]}"
        sys.stdout.write(printable(f"{name} = {value} ({where})") + "\n")


def _add_set(parser: ArgumentParser) -> None:
    for each in ATTRIBUTES:
        parser.add_argument(each.option, dest=each.field, metavar=each.name.upper(), help=each.takes.expects)
