"""The sections of a region: its trigger and time-outs, the JMS broker of its source, and the brokers of its sinks."""

from enum import StrEnum
from typing import Annotated

import msgspec

from notification_service.connectors.jms.settings import Missing
from resequencer.keys.configuration_key import Key
from resequencer.keys.list_types import QUEUE_PATTERN, QueuePart, QueueParts
from resequencer.keys.value_types import Choice, Duration, SecretText, Text, Url, Whole

_QUEUE = Text(QUEUE_PATTERN, "the name of a queue: 1 to 200 letters, digits, and . _ : / $ @ + -")
_URL = Url(("amqp", "amqps"))
TOPIC = Text(r"[A-Za-z0-9._:/@-]{1,200}", "a topic of MQTT: 1 to 200 letters, digits, and . _ : / @ -")
"""Without wildcards, and without the $ with which a broker's own topics begin."""

MQTT_URL = Url(("mqtt", "mqtts"))
QOS = Whole(0, 2)
_CLIENT = Text(r"[A-Za-z0-9._:@-]{1,100}", "1 to 100 letters, digits, and . _ : @ -", "the broker chooses one")
_USER = Text(r"[^\x00-\x1f]{1,256}", "a text", "no login")
_PASSWORD = SecretText("no login")


class Trigger(StrEnum):
    OPERATOR_DRIVEN = "operator-driven"
    PERIODIC = "periodic"


class JmsInput(msgspec.Struct, frozen=True):
    """The broker and the queues of a JMS source. `url` is a `Secret`, for it may hold a password.

    The partition with index N of the list has the number N, and the name of its queue as its topic.
    """

    url: Annotated[str, Key(_URL)]
    user: Annotated[str | None, Key(_USER)]
    password: Annotated[str | None, Key(_PASSWORD)]
    partitions: Annotated[tuple[QueuePart, ...], Key(QueueParts())]
    message_id: Annotated[Missing, Key(Choice(tuple(Missing)))]
    heartbeat_ms: Annotated[int, Key(Duration("1s", "5m"))]


class JmsOutput(msgspec.Struct, frozen=True):
    """The broker and the queues of a JMS sink. `url` is a `Secret`, for it may hold a password."""

    url: Annotated[str, Key(_URL)]
    user: Annotated[str | None, Key(_USER)]
    password: Annotated[str | None, Key(_PASSWORD)]
    notifications_queue: Annotated[str, Key(_QUEUE, "notifications.queue")]
    dead_letters_queue: Annotated[str, Key(_QUEUE, "dead-letters.queue")]
    markers_queue: Annotated[str, Key(_QUEUE, "markers.queue")]


class MqttOutput(msgspec.Struct, frozen=True):
    """The broker and the topics of an MQTT sink. `url` is a `Secret`, for it may hold a password.

    `client_id` None: the broker chooses one.
    """

    url: Annotated[str, Key(MQTT_URL)]
    user: Annotated[str | None, Key(_USER)]
    password: Annotated[str | None, Key(_PASSWORD)]
    client_id: Annotated[str | None, Key(_CLIENT)]
    qos: Annotated[int, Key(QOS)]
    notifications_topic: Annotated[str, Key(TOPIC, "notifications.topic")]
    dead_letters_topic: Annotated[str, Key(TOPIC, "dead-letters.topic")]
    heartbeat_ms: Annotated[int, Key(Duration("1s", "5m"))]


class XmsOutput(msgspec.Struct, frozen=True):
    """The broker and the queues of an XMS sink. `url` is a `Secret`, for it may hold a password."""

    url: Annotated[str, Key(_URL)]
    user: Annotated[str | None, Key(_USER)]
    password: Annotated[str | None, Key(_PASSWORD)]
    notifications_queue: Annotated[str, Key(_QUEUE, "notifications.queue")]
    dead_letters_queue: Annotated[str, Key(_QUEUE, "dead-letters.queue")]


class RegionSettings(msgspec.Struct, frozen=True):
    """When an interval of a region ends, and how long drain and reset may take.

    `trigger_count` None: as many records as a poll takes at most. After `most_resets` resets in a row the region waits for an
    operator.
    """

    trigger: Annotated[Trigger, Key(Choice(tuple(Trigger)))]
    trigger_count: Annotated[int | None, Key(Whole(1, 100_000, "batch-size of the ingress"))]
    period_ms: Annotated[int, Key(Duration("10ms", "5s"))]
    drain_timeout_ms: Annotated[int, Key(Duration("1s", "1h"), "drain-timeout")]
    reset_timeout_ms: Annotated[int, Key(Duration("1s", "1h"), "reset-timeout")]
    most_resets: Annotated[int, Key(Whole(1, 1_000), "max-consecutive-reset-attempts")]
