"""The quick producer sends records as the client's own does."""

import tracemalloc
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaProducer, errors
from kafka.partitioner.default import murmur2
from kafka.producer.transaction_manager import TransactionalRequestResult
from kafka.structs import ConsumerGroupMetadata

from notification_service.connectors.kafka.client import Bounded
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.producer import QuickProducer, TransactionalProducer, partition_of


@pytest.mark.slow
@given(st.binary(max_size=1_024), st.integers(1, 2_000))
def test_a_key_has_the_partition_that_every_client_of_kafka_gives_it(key: bytes, count: int) -> None:
    assert partition_of(key, count) == (murmur2(key) & 0x7FFFFFFF) % count


def test_keys_of_dead_letters_are_not_remembered_however_long_they_are() -> None:
    """When keys were remembered, they took 191 MB."""
    tracemalloc.start()
    for number in range(200):
        key = b"%d" % number + b"k" * 1_000_000
        assert 0 <= partition_of(key, 7) < 7
        assert partition_of(key, 7) == partition_of(bytes(bytearray(key)), 7)
    del key
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 100_000


@pytest.mark.parametrize(("key", "is_sent_as_the_client_does"), [(b"k" * 1_024, False), (b"k" * 1_025, True)])
@pytest.mark.parametrize("value", [b"value", b"x" * 100_000])
def test_a_long_key_has_one_partition_whatever_is_sent_with_it(
    value: bytes, key: bytes, is_sent_as_the_client_does: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, _ = _in_a_transaction()
    sent = Mock()
    monkeypatch.setattr(KafkaProducer, "send", sent)
    producer.send("T", value, key, [])
    assert sent.called is (is_sent_as_the_client_does or len(value) > 1_000)
    chosen = sent.call_args.args[4] if sent.called else producer._accumulator.append.call_args.args[0].partition
    assert chosen == partition_of(key, 3)


def test_refused_positions_are_told_by_the_next_record() -> None:
    producer, answer = _in_a_transaction()
    answer.done(error=errors.CommitFailedError())
    with pytest.raises(errors.CommitFailedError):
        producer.send("T", b"value", b"key", [])


def test_a_transaction_does_not_end_before_its_positions_were_taken() -> None:
    producer, answer = _in_a_transaction()
    answer.done(error=errors.CommitFailedError())
    with pytest.raises(errors.CommitFailedError):
        producer.commit_transaction()
    producer._transaction_manager.begin_commit.assert_not_called()


def test_each_transaction_asks_for_its_partitions_again() -> None:
    producer, _ = _in_a_transaction()
    for _ in range(2):
        producer.begin_transaction()
        for _ in range(2):
            producer.send("T", b"value", b"key", [])
    assert producer._transaction_manager.maybe_add_partition_to_transaction.call_count == 2


@pytest.mark.parametrize("refusal", [errors.CommitFailedError(), errors.ProducerFencedError()])
def test_a_refusal_is_told_as_what_it_is_by_whichever_call_comes_upon_it(refusal: errors.KafkaError) -> None:
    producer, _ = _in_a_transaction()
    later = errors.KafkaError("Cannot perform send because at least one previous request has failed.", refusal)
    producer._transaction_manager.maybe_add_partition_to_transaction.side_effect = later
    transactional = TransactionalProducer.__new__(TransactionalProducer)
    transactional._producer, transactional._bounded, transactional._timeout_ms = producer, Bounded(), 60_000
    with pytest.raises(type(refusal)):
        transactional.commit([ProducerRecord("T", b"value", b"key", ())], {}, ConsumerGroupMetadata("group", 1, "", None))


class _HollowProducer(QuickProducer):
    """A producer without the client's insides: it has no connection, and nothing to close."""

    def __init__(self) -> None:
        pass

    def __del__(self) -> None:
        pass


def _in_a_transaction() -> tuple[QuickProducer, TransactionalRequestResult]:
    """Run within a transaction that has positions under way."""
    producer, answer = _HollowProducer(), TransactionalRequestResult()
    producer._transaction_manager, producer._sender, producer._accumulator = Mock(), Mock(), Mock()
    producer._metadata = Mock(partitions_for_topic=lambda _: {0, 1, 2})
    producer._accumulator.append.return_value = (Mock(), False, True, False)
    producer._transaction_manager.send_offsets_to_transaction.return_value = answer
    producer.begin_transaction()
    producer.send_offsets_to_transaction({}, Mock())
    return producer, answer
