"""Checks the options under the two `kafka-clients` sections."""

from collections.abc import Iterator, Mapping
from typing import Any

from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Ingress, Notifications
from notification_service.connectors.kafka.core.client_options import read_options
from resequencer.errors import ConfigurationError

CONSUMER_CLIENTS = path_of(Ingress, "kafka_clients")
PRODUCER_CLIENTS = path_of(Notifications, "kafka_clients")

_POLL_INTERVAL_MS = 300_000


def refused_options(options: Mapping[str, Any]) -> Iterator[ConfigurationError]:
    """Return the refused options, by their full paths. Options are texts, numbers and booleans."""
    _, consumer, producer = read_options(_section(options, CONSUMER_CLIENTS), _section(options, PRODUCER_CLIENTS))
    for section, problems in ((CONSUMER_CLIENTS, consumer), (PRODUCER_CLIENTS, producer)):
        for problem in problems:
            yield ConfigurationError(f"{section}.{problem.option}", problem.text)


def poll_interval_ms(options: Mapping[str, Any]) -> int:
    """Return the consumer's `max.poll.interval.ms` from options by their full paths; Kafka's default if it is not set, or
    invalid.
    """
    read, _, _ = read_options(_section(options, CONSUMER_CLIENTS), {})
    interval_ms: int = read.consumer.get("max_poll_interval_ms", _POLL_INTERVAL_MS)
    return interval_ms


def _section(options: Mapping[str, Any], section: str) -> dict[str, Any]:
    prefix = f"{section}."
    return {path.removeprefix(prefix): value for path, value in options.items() if path.startswith(prefix)}
