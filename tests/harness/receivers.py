"""Settings of receivers for tests: the defaults of reference.conf with some keys changed."""

from functools import cache
from pathlib import Path

from notification_service.configuration.configuration import load
from notification_service.delivery.settings import DeliverySettings, Receiver

_SECTION = "payment-status-notification.delivery"
_ON_KAFKA = (
    "ipf.processing-data.ingress.transport = kafka",
    "payment-status-notification.transport = kafka",
)


@cache
def delivery_settings(*keys: str, url: str = "http://127.0.0.1:1", is_kafka: bool = False) -> DeliverySettings:
    """Return the settings of delivery with one receiver `r`; `keys` are HOCON below it, such as `retry.attempts = 3`."""
    overrides = [f'{_SECTION}.receivers.r.url = "{url}"', *(f"{_SECTION}.receivers.r.{key}" for key in keys)]
    return load(Path("conf/application.conf"), [*overrides, *(_ON_KAFKA if is_kafka else ())]).delivery


def receiver(*keys: str, url: str = "http://127.0.0.1:1", is_kafka: bool = False) -> Receiver:
    """Return the settings of one receiver."""
    return delivery_settings(*keys, url=url, is_kafka=is_kafka).receivers[0][1]
