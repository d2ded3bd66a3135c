"""The settings of the bridge. Durations are in ms."""

from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

import msgspec

from guardian.headers import DEAD_LETTER_VALUE_LENGTH, DEAD_LETTER_VALUE_SHA256, cut_headers
from notification_service.connectors.jms.settings import XmsSourceSettings
from notification_service.connectors.line_format import Line
from notification_service.connectors.mqtt.settings import MqttSourceSettings
from notification_service.events.identifiers import find_id_flaw
from resequencer.event import Decoder, Event, Refusal
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice, Switch
from resequencer.record import Cut, Origin, Partition, Record


class SourceKind(StrEnum):
    """Where the messages come from: a broker of MQTT, or a queue of a broker that speaks AMQP 1.0, as IBM MQ does."""

    MQTT = "mqtt"
    XMS = "xms"


class StartKind(StrEnum):
    """Where they are appended: to the topic that the ingress reads, or to its partition files."""

    KAFKA = "kafka"
    FILE = "file"


class BridgeSettings(msgspec.Struct, frozen=True):
    """All settings of the bridge."""

    is_enabled: Annotated[bool, Key(Switch(), "enabled")]
    source: Annotated[SourceKind, Key(Choice(tuple(SourceKind)))]
    start: Annotated[StartKind, Key(Choice(tuple(StartKind)))]
    mqtt: Annotated[MqttSourceSettings, Section("mqtt")]
    xms: Annotated[XmsSourceSettings, Section("xms")]


_BEGINNING_BYTES = 64 * 1024
_OF_A_CUT = (DEAD_LETTER_VALUE_LENGTH, DEAD_LETTER_VALUE_SHA256)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Context(msgspec.Struct, rename="camel", gc=False):
    unit_of_work_id: str | None = None


class _Envelope(msgspec.Struct, rename="camel", gc=False):
    processing_context: _Context | None = None


_decode = msgspec.json.Decoder(_Envelope).decode
_NOWHERE = Origin(Partition("", 0), 0)


def with_key(line: Line) -> Line:
    """Return the line with its unit of work as the key, so that all envelopes of a unit get into one partition.

    What is no envelope keeps its key. It is appended all the same: the resequencer makes a dead letter of it.
    """
    unit = _find_unit(line.content)
    return line if unit is None else Line(line.value, unit.encode(), line.headers)


def keyed_by(decoder: Decoder) -> Callable[[Line], Line]:
    """Return what `with_key` does, for records of another format than IPF's.

    If the format reads something in the key, the key stays: with another one the record would be another event.
    """

    def keyed(line: Line) -> Line:
        event = _decoded(decoder, line)
        if event is None:
            return line
        with_unit = Line(line.value, event.unit.encode(), line.headers)
        again = _decoded(decoder, with_unit)
        return with_unit if again is not None and _identity(again) == _identity(event) else line

    return keyed


def _decoded(decoder: Decoder, line: Line) -> Event | None:
    event = decoder.decode(Record(_NOWHERE, line.value, line.key, line.headers))
    return None if isinstance(event, Refusal) else event


def _identity(event: Event) -> tuple[str, str, int | None, str]:
    """Return what makes it this event. A digest of the contents as its id covers the key, too."""
    return event.unit, event.flow, event.sequence, event.event_id.replace(event.digest.hex(), "")


def find_shorter(line: Line) -> Line | None:
    """Return what to append instead of a line that is too large: the beginning of its value, then its length and digest alone.

    The service makes a dead letter `too-large` of either. None: there is nothing shorter.
    """
    of_a_cut = tuple(each for each in line.headers if each[0] in _OF_A_CUT)
    if not of_a_cut:
        value = line.content
        cut = Cut(len(value), sha256(value).hexdigest())
        return Line(value[:_BEGINNING_BYTES], line.key, (*line.headers, *cut_headers(cut)))
    shortest = Line(b"", None, of_a_cut[-len(_OF_A_CUT) :])
    return None if line == shortest else shortest


def _find_unit(value: bytes) -> str | None:
    try:
        context = _decode(value.removeprefix(_BYTE_ORDER_MARK)).processing_context
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    unit = None if context is None else context.unit_of_work_id
    return None if unit is None or find_id_flaw(unit) else unit
