"""Which topics the Kafka transport reads and writes, as whom, and how long it waits."""

from collections.abc import Mapping
from typing import Any

import msgspec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from connectors.kafka.core.client_options import ClientOptions
from connectors.kafka.core.topic_names import KafkaTopics

_CONSUMER_DEFAULTS: Mapping[str, Any] = {
    # What is read ahead is held in memory; a worker that was killed is missed after 10 s, not 45.
    "fetch_max_bytes": 16 << 20,
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 2_000,
    "metadata_max_age_ms": 10_000,
    "request_timeout_ms": 10_000,
    # A broker that comes back is noticed within a second; by default it takes up to half a minute.
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
    # Of a cycle of one partition, two instead of six. Topics take 1 MiB by default; for one that takes less it is split.
    "batch_size": 512 << 10,
    "reconnect_backoff_max_ms": 1_000,
    # Between the steps of a transaction; the default of 100 costs up to 400 ms from one to the next.
    "retry_backoff_ms": 5,
}
_PRODUCER_ALWAYS: Mapping[str, Any] = {"acks": -1, "allow_auto_create_topics": False, "metrics_enabled": False}


class KafkaSettings(msgspec.Struct, frozen=True):
    """`consumer` and `producer` are all options of kafka-python's clients, by its names.

    The transactional id is the worker's own: the same after a restart, for it ends what its predecessor left open, and
    different from that of any other worker. A value of more than `max_value_bytes` is cut. No call waits longer for the
    brokers than about `call_timeout_ms`, but `publish`, which takes up to `transaction_timeout_ms` more.
    """

    topics: KafkaTopics
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    begins_at_earliest: bool = True
    max_value_bytes: int = 5 << 20
    call_timeout_ms: int = 5_000
    undecided_wait_ms: int = 500

    @property
    def group_id(self) -> str:
        return str(self.consumer["group_id"])

    @property
    def transactional_id(self) -> str:
        return str(self.producer["transactional_id"])

    @property
    def max_request_bytes(self) -> int:
        """What the producer takes of a record, by itself."""
        return int(self.producer.get("max_request_size", 1 << 20))

    @property
    def look_interval_ms(self) -> int:
        """How often the topics are looked at: whether the input was made anew, or has grown."""
        return int(self.consumer["metadata_max_age_ms"])

    @property
    def settling_seconds(self) -> float:
        """Until when a group with cooperative assignment has told everybody of the next generation, and a little more."""
        return 2 * int(self.consumer["heartbeat_interval_ms"]) / 1000

    @property
    def transaction_timeout_ms(self) -> int:
        return int(self.producer["transaction_timeout_ms"])

    def uncommitted(self) -> "KafkaSettings":
        """To read what is written, decided or not."""
        return msgspec.structs.replace(self, consumer={**self.consumer, "isolation_level": "read_uncommitted"})

    @classmethod
    def make(cls, topics: KafkaTopics, options: ClientOptions, transactional_id: str, max_value_bytes: int) -> "KafkaSettings":
        """What was given over what is the default here, and under what is always so."""
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
    """Within a transaction. A batch leaves when it is full or everything was handed over: none lingers for longer."""
    return {
        "transaction_timeout_ms": transaction_timeout_ms,
        "delivery_timeout_ms": transaction_timeout_ms,
        "request_timeout_ms": transaction_timeout_ms // 2,
        "linger_ms": transaction_timeout_ms // 10,
    }
