"""The attributes of the MQTT sink: qos, server and topics, which an operator can change while the service runs (docs/regions.md).

They are a file in the run directory, written durably by `resequencer sink set`. A worker reads it before each publication: so
what was set holds from the next publication on, and after each reset and each start.
"""

import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from guardian.ports import TransportRefused
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.mqtt_settings import mqtt_sink_settings
from notification_service.configuration.region_sections import MQTT_URL, QOS, TOPIC
from notification_service.connectors.mqtt.settings import MqttSinkSettings
from notification_service.status.sink_attributes import SetAttributes, SinkAttributesFile
from resequencer.keys.value_types import Mismatch, ValueType

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
    fields: dict[str, Any] = {"url": settings.broker.place} | msgspec.structs.asdict(settings)
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
    configured, told = values_of(settings), []
    for each in ATTRIBUTES:
        change = found.get(each.name)
        if change is None or change.configured != configured[each.name]:
            continue
        value = each.takes.read(change.value)
        if each.name == "url":
            settings = replace(settings, broker=replace(settings.broker, url=str(value)))
        else:
            settings = replace(settings, **{each.field: value})
        told.append(f"{each.name} = {change.value} (configured: {change.configured}), set by {change.by} at {change.at}")
    return replace(settings, told=f"sink mqtt: {'; '.join(told)}") if told else settings


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
            problem = "is damaged. To go on with what is configured: `resequencer sink reset`"
            raise TransportRefused(str(self._file.path), problem) from error
        return self._current

    def _take(self, settings: MqttSinkSettings) -> None:
        if settings != self._current:
            _log.warning("%s", settings.told or "sink mqtt: its attributes are as configured")
        self._current = settings


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever the file is replaced; None without a file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
