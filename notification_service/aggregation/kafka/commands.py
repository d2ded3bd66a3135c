"""Gives commands to a store on topics."""

from kafka import KafkaProducer

from notification_service.aggregation.commands import member_headers
from notification_service.connectors.kafka.client import make_client
from notification_service.connectors.kafka.errors import translated
from notification_service.connectors.kafka.settings import KafkaSettings


class TopicCommands:
    """Sends to the topic of commands, with an idempotent producer that is no transaction's."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.input
        self._timeout_seconds = settings.call_timeout_ms / 1_000
        options = {name: value for name, value in settings.producer.items() if name != "transactional_id"}
        options.pop("transaction_timeout_ms", None)
        self._producer: KafkaProducer = make_client("the brokers", KafkaProducer, options)

    def update(self, key: str, member: str | None, body: bytes) -> None:
        with translated(f"topic {self._topic}"):
            self._producer.send(self._topic, body, key.encode(), list(member_headers(member))).get(self._timeout_seconds)

    def close(self) -> None:
        self._producer.close(timeout=self._timeout_seconds)
