"""The settings of the bridge. Durations are in ms."""

from enum import StrEnum
from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.list_types import QUEUE_PATTERN, TopicFilters
from resequencer.keys.value_types import Choice, Duration, SecretText, Switch, Text, Url, Whole

_USER = Text(r"[^\x00-\x1f]{1,256}", "a text", "no login")
_PASSWORD = SecretText("no login")


class SourceKind(StrEnum):
    """Where the messages come from: a broker of MQTT, or a queue of a broker that speaks AMQP 1.0, as IBM MQ does."""

    MQTT = "mqtt"
    XMS = "xms"


class StartKind(StrEnum):
    """Where they are appended: to the topic that the ingress reads, or to its partition files."""

    KAFKA = "kafka"
    FILE = "file"


class BridgeMqtt(msgspec.Struct, frozen=True):
    """The broker of MQTT, the session and its subscriptions. `url` is a `Secret`, for it may hold a password.

    `queue_size` is the most messages that are taken and not acknowledged.
    """

    url: Annotated[str, Key(Url(("mqtt", "mqtts")))]
    user: Annotated[str | None, Key(_USER)]
    password: Annotated[str | None, Key(_PASSWORD)]
    client_id: Annotated[
        str | None, Key(Text(r"[^\x00-\x1f]{1,128}", "a text of 1 to 128 characters", "the storage's namespace with -bridge"))
    ]
    qos: Annotated[int, Key(Whole(0, 2))]
    topics: Annotated[tuple[str, ...], Key(TopicFilters())]
    session_expiry_ms: Annotated[int, Key(Duration("1m", "3650d"))]
    queue_size: Annotated[int, Key(Whole(1, 10_000), "message-queue-size")]


class BridgeXms(msgspec.Struct, frozen=True):
    """The broker and the queue of AMQP 1.0. `url` is a `Secret`, for it may hold a password."""

    url: Annotated[str, Key(Url(("amqp", "amqps")))]
    user: Annotated[str | None, Key(_USER)]
    password: Annotated[str | None, Key(_PASSWORD)]
    queue: Annotated[str, Key(Text(QUEUE_PATTERN, "the name of a queue: 1 to 200 letters, digits, and . _ : / $ @ + -"))]


class BridgeSettings(msgspec.Struct, frozen=True):
    """All settings of the bridge."""

    is_enabled: Annotated[bool, Key(Switch(), "enabled")]
    source: Annotated[SourceKind, Key(Choice(tuple(SourceKind)))]
    start: Annotated[StartKind, Key(Choice(tuple(StartKind)))]
    mqtt: Annotated[BridgeMqtt, Section("mqtt")]
    xms: Annotated[BridgeXms, Section("xms")]
