"""The settings of connections, sources and sinks of MQTT. Sources and sinks are sections of the configuration."""

from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from resequencer.keys.configuration_key import Key
from resequencer.keys.list_types import MAX_ITEMS, DifferentItems
from resequencer.keys.value_types import PASSWORD, USER, Duration, Mismatch, Text, Url, Whole

_PORTS = {"mqtt": 1883, "mqtts": 8883}
MQTT_URL = Url(tuple(_PORTS))
QOS = Whole(0, 2)
TOPIC = Text(r"[A-Za-z0-9._:/@-]{1,200}", "a topic of MQTT: 1 to 200 letters, digits, and . _ : / @ -")
"""Without wildcards, and without the $ with which a broker's own topics begin."""

_LONGEST_FILTER = 1_000


class BrokerSettings(msgspec.Struct, frozen=True):
    """A broker and a login. `url` is `mqtt://host:port`, or `mqtts://host:port` with TLS; without a port 1883 or 8883. It is a
    `Secret`, for it may hold a password.

    `client_id` None: the broker or the client makes one. A broker that is silent for `heartbeat_ms` counts as lost, one that
    answers nothing for `call_timeout_ms` as well.
    """

    url: Annotated[str, Key(MQTT_URL)]
    user: Annotated[str | None, Key(USER)] = None
    password: Annotated[str | None, Key(PASSWORD)] = None
    client_id: str | None = None
    heartbeat_ms: int = 10_000
    call_timeout_ms: int = 5_000

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        url = urlsplit(self.url)
        return url.hostname or "", url.port or _PORTS[url.scheme]

    @property
    def has_tls(self) -> bool:
        return urlsplit(self.url).scheme == "mqtts"

    @property
    def place(self) -> str:
        """The URL as operators may see it: without a login."""
        host, port = self.address
        return f"{urlsplit(self.url).scheme}://{host}:{port}"


class TopicFilters(DifferentItems, msgspec.Struct, frozen=True):
    """A list of different topic filters of MQTT, at least one. A shared subscription is none: it keeps no order."""

    expects: str = (
        'a list of different topic filters of MQTT, such as ["IPF_PROCESSING_DATA/#"]; none of them begins with $share/'
    )
    max_items = MAX_ITEMS

    def read(self, value: Any) -> tuple[str, ...]:
        if not value:
            raise Mismatch
        return super().read(value)

    def read_item(self, item: Any) -> Any:
        if not _is_topic_filter(item):
            raise Mismatch
        return item


def _is_topic_filter(value: Any) -> bool:
    """Return whether it is a filter: `+` is a whole level, `#` is the whole last level."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_FILTER or not value.isprintable():
        return False
    levels = value.split("/")
    is_whole = all(each == "+" or not ("+" in each or "#" in each) for each in levels[:-1])
    return is_whole and (levels[-1] in ("+", "#") or not set("+#") & set(levels[-1])) and levels[0] != "$share"


class MqttSinkSettings(BrokerSettings, frozen=True, kw_only=True):
    """The broker and the topics of a sink. `qos`: with 0 a message may be lost, with 1 and 2 it may come twice.

    `changes` is a sentence for operators about what is not as configured; None: nothing.
    """

    client_id: Annotated[
        str | None, Key(Text(r"[A-Za-z0-9._:@-]{1,100}", "1 to 100 letters, digits, and . _ : @ -", "the broker chooses one"))
    ] = None
    qos: Annotated[int, Key(QOS)] = 1
    notifications: Annotated[str, Key(TOPIC, "notifications.topic")] = "PAYMENT_STATUS_NOTIFICATION"
    dead_letters: Annotated[str, Key(TOPIC, "dead-letters.topic")] = "PAYMENT_STATUS_NOTIFICATION_DEAD_LETTERS"
    heartbeat_ms: Annotated[int, Key(Duration("1s", "5m"))] = 10_000
    changes: str | None = None


class MqttSourceSettings(BrokerSettings, frozen=True, kw_only=True):
    """The broker, the session and its subscriptions. `client_id` is not None once a bridge has it.

    `queue_size` is the most messages that are taken and not acknowledged.
    """

    client_id: Annotated[
        str | None, Key(Text(r"[^\x00-\x1f]{1,128}", "a text of 1 to 128 characters", "the storage's namespace with -bridge"))
    ] = None
    qos: Annotated[int, Key(QOS)] = 1
    topics: Annotated[tuple[str, ...], Key(TopicFilters())]
    session_expiry_ms: Annotated[int, Key(Duration("1m", "3650d"))] = 86_400_000
    queue_size: Annotated[int, Key(Whole(1, 10_000), "message-queue-size")] = 50
