"""The settings of the Kafka transport: topics, client options, limits and times."""

from collections.abc import Mapping
from typing import Any

import msgspec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from notification_service.connectors.kafka.core.client_options import ClientOptions, KafkaTopics

_CONSUMER_DEFAULTS: Mapping[str, Any] = {
    # Records read ahead are held in memory. A killed worker is detected after 10 s instead of 45 s.
    "fetch_max_bytes": 16 << 20,
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 2_000,
    "metadata_max_age_ms": 10_000,
    "request_timeout_ms": 10_000,
    # A broker that comes back is noticed within 1 s; by default it takes up to 30 s.
    "reconnect_backoff_max_ms": 1_000,
    "retry_backoff_ms": 50,
}
_CONSUMER_ALWAYS: Mapping[str, Any] = {
    "allow_auto_create_topics": False,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "metrics_enabled": False,
    "partition_assignment_strategy": (CooperativeStickyAssignor,),
}
_PRODUCER_DEFAULTS: Mapping[str, Any] = {
    # A cycle of one partition fits in two batches instead of six. Topics accept 1 MiB by default; else the client splits it.
    "batch_size": 512 << 10,
    "reconnect_backoff_max_ms": 1_000,
    # The pause between the steps of a transaction; the default of 100 costs up to 400 ms per transaction.
    "retry_backoff_ms": 5,
}
_PRODUCER_ALWAYS: Mapping[str, Any] = {"acks": -1, "allow_auto_create_topics": False, "metrics_enabled": False}


class KafkaSettings(msgspec.Struct, frozen=True):
    """`consumer` and `producer` hold all options of kafka-python's clients, by its names.

    The transactional id belongs to one worker. It stays the same after a restart, so that the worker ends its predecessor's open
    transaction, and differs from all other workers' ids. A value of more than `max_value_bytes` is cut. No call waits for the
    brokers for much longer than `call_timeout_ms`, except `publish`, which takes up to `transaction_timeout_ms` more.

    `partitions` are the numbers of those that this worker reads, whoever else reads them; None: the group assigns all of them.
    """

    topics: KafkaTopics
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    begins_at_earliest: bool = True
    max_value_bytes: int = 5 << 20
    call_timeout_ms: int = 5_000
    undecided_wait_ms: int = 500
    partitions: tuple[int, ...] | None = None

    @property
    def group_id(self) -> str:
        return str(self.consumer["group_id"])

    @property
    def transactional_id(self) -> str:
        return str(self.producer["transactional_id"])

    @property
    def max_request_bytes(self) -> int:
        """The largest record that the producer itself accepts, in bytes."""
        return int(self.producer.get("max_request_size", 1 << 20))

    @property
    def look_interval_ms(self) -> int:
        """How often the topics are checked, in ms: whether the input topic was recreated or has grown."""
        return int(self.consumer["metadata_max_age_ms"])

    @property
    def session_timeout_ms(self) -> int:
        """After so long without a heartbeat the group gives a worker's partitions to others."""
        return int(self.consumer["session_timeout_ms"])

    @property
    def settling_seconds(self) -> float:
        """How long a cooperative rebalance takes to reach all members (two heartbeats), in seconds."""
        return 2 * int(self.consumer["heartbeat_interval_ms"]) / 1000

    @property
    def transaction_timeout_ms(self) -> int:
        return int(self.producer["transaction_timeout_ms"])

    def uncommitted(self) -> "KafkaSettings":
        """Return settings for a consumer that also reads undecided records."""
        return msgspec.structs.replace(self, consumer={**self.consumer, "isolation_level": "read_uncommitted"})

    def without_facts(self) -> "KafkaSettings":
        """Return settings for a program that does not use facts, and needs no rights on their topic."""
        return msgspec.structs.replace(self, topics=self.topics.without_facts())

    def with_id(self, transactional_id: str) -> "KafkaSettings":
        """Return settings with this transactional id."""
        return msgspec.structs.replace(self, producer={**self.producer, "transactional_id": transactional_id})

    @classmethod
    def make(cls, topics: KafkaTopics, options: ClientOptions, transactional_id: str, max_value_bytes: int) -> "KafkaSettings":
        """Combine defaults, given options and fixed options; given options override defaults, fixed ones override both."""
        given = dict(options.consumer)
        begins_at_earliest = given.pop("begins_at_earliest", True)
        call_timeout_ms = given.pop("call_timeout_ms", 5_000)
        waits = {"bootstrap_timeout_ms": call_timeout_ms}
        consumer = {**_CONSUMER_DEFAULTS, **waits, **given, **_CONSUMER_ALWAYS}
        waits = {"max_block_ms": call_timeout_ms, **_waits_of(options.producer.get("transaction_timeout_ms", 10_000)), **waits}
        own = {"transactional_id": transactional_id}
        producer = {**_PRODUCER_DEFAULTS, **waits, **options.producer, **_PRODUCER_ALWAYS, **own}
        return cls(topics, consumer, producer, begins_at_earliest, max_value_bytes, call_timeout_ms)


def _waits_of(transaction_timeout_ms: int) -> dict[str, int]:
    """Return the limits within a transaction. Batches are sent when full or at the flush, so `linger_ms` is an upper bound."""
    return {
        "transaction_timeout_ms": transaction_timeout_ms,
        "delivery_timeout_ms": transaction_timeout_ms,
        "request_timeout_ms": transaction_timeout_ms // 2,
        "linger_ms": transaction_timeout_ms // 10,
    }
