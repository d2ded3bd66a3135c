"""The client's producer with less work per record."""

from functools import lru_cache
from struct import iter_unpack
from typing import Any
from zlib import crc32

from kafka import KafkaProducer, TopicPartition

from notification_service.events.identifiers import MAX_LENGTH

_PLAIN_BYTES = 64 << 10
"""Longer values are sent by the client's own code, which checks the size again."""

_KEYS, _KEY_BYTES = 1 << 14, 4 * MAX_LENGTH
"""How many keys' partitions are cached, and the longest key cached. A longer key is no unit's id, but that of a dead letter."""

_MASK, _MIX = 0xFFFFFFFF, 0x5BD1E995


class QuickProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python ships no types.
    """Sends the only form that occurs here: bytes in a transaction, mostly with a key, to a known topic. A deleted value is None.

    For each record the client (3.0.12) looks up the topics, sorts their partitions, and computes the key's hash byte by byte.
    It checks each header's type and the transaction's state, and wakes its sender when a batch is full. That took longer than
    writing the record. The client also waits for the brokers' answer to the offsets before it writes the first record; here the
    wait comes before the commit.
    """

    def begin_transaction(self) -> None:
        self._joined: set[TopicPartition] = set()
        self._offsets: Any = None
        super().begin_transaction()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Start sending the offsets and return at once. If the brokers refuse them, the next call raises the error."""
        self._offsets = self._transaction_manager.send_offsets_to_transaction(offsets, group_metadata)
        self._sender.wakeup()

    def commit_transaction(self) -> None:
        if self._offsets is not None:
            self._offsets.wait()
        super().commit_transaction()

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]], number: int | None = None
    ) -> Any:
        if self._offsets is not None and self._offsets.failed:
            raise self._offsets.exception
        partitions = self._metadata.partitions_for_topic(topic)
        if key is None or not partitions or (number is not None and number not in partitions):
            return super().send(topic, value, key, headers, number)
        partition = TopicPartition(topic, partition_of(key, len(partitions)) if number is None else number)
        if len(value or b"") > _PLAIN_BYTES or len(key) > _KEY_BYTES:
            return super().send(topic, value, key, headers, partition.partition)
        if partition not in self._joined:
            self._transaction_manager.maybe_add_partition_to_transaction(partition)
            self._joined.add(partition)
        future, _, is_new, _ = self._accumulator.append(partition, None, key, value, headers)
        if is_new:
            self._sender.wakeup()
        return future


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of `count` that all Kafka clients choose: by the positive murmur2 of the key.

    A key too long for a unit's id may have megabytes, for which murmur2 takes seconds; it is placed by its checksum.
    """
    return _partition_of_id(key, count) if len(key) <= _KEY_BYTES else crc32(key) % count


@lru_cache(_KEYS)
def _partition_of_id(key: bytes, count: int) -> int:
    return (_murmur2(key) & 0x7FFFFFFF) % count


def _murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed of Kafka's `Utils.murmur2`."""
    length = len(data)
    whole = length & ~3
    mixed = 0x9747B28C ^ length
    for (word,) in iter_unpack("<I", data[:whole]):
        word = word * _MIX & _MASK
        mixed = mixed * _MIX & _MASK ^ (word ^ word >> 24) * _MIX & _MASK
    if rest := data[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 13) * _MIX & _MASK
    return mixed ^ mixed >> 15
