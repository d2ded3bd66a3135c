"""The settings of connections and sinks of MQTT."""

from urllib.parse import urlsplit

import msgspec

_PORTS = {"mqtt": 1883, "mqtts": 8883}


class BrokerSettings(msgspec.Struct, frozen=True):
    """A broker and a login. `url` is `mqtt://host:port`, or `mqtts://host:port` with TLS; without a port 1883 or 8883.

    `client_id` None: the broker or the client makes one. A broker that is silent for `heartbeat_ms` counts as lost, one that
    answers nothing for `call_timeout_ms` as well.
    """

    url: str
    user: str | None = None
    password: str | None = None
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


class MqttSinkSettings(msgspec.Struct, frozen=True):
    """The topics of a sink. `qos`: with 0 a message may be lost, with 1 and 2 it may come twice.

    `told` says to operators what of it is not as configured; None: nothing.
    """

    broker: BrokerSettings
    qos: int = 1
    notifications: str = "PAYMENT_STATUS_NOTIFICATION"
    dead_letters: str = "PAYMENT_STATUS_NOTIFICATION_DEAD_LETTERS"
    told: str | None = None
