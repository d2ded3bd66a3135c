"""Of all records that the client fails with one error, the one that the brokers have refused is named."""

from collections.abc import Callable, Sequence

import pytest
from harness.service_under_test import FakeClock
from kafka import TopicPartition, errors
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata

from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.producer import NotTaken, _raise_failure
from notification_service.connectors.kafka.settings import KafkaSettings, KafkaTopics
from notification_service.connectors.kafka.sink import Fitting
from notification_service.connectors.kafka.topics import Topics

NO_KEY = "Compacted topic cannot accept message without key in topic partition order-timestamps-0."
TOO_OLD = "Timestamp 1000000000000 of message with offset 0 is out of range. The timestamp should be within [1, 2]"

FindError = Callable[[int], Exception]


def future_of(batch: FutureProduceResult, index: int = 0, size: int = 3) -> FutureRecordMetadata:
    return FutureRecordMetadata(batch, index, None, None, 1, size, 0)


def refused_among(futures: Sequence[FutureRecordMetadata]) -> NotTaken:
    with pytest.raises(NotTaken) as raised:
        _raise_failure(futures)
    return raised.value


def answered(find_error: FindError) -> FutureProduceResult:
    """Return a batch that the brokers have answered, with the error of each of its records, as the client (3.0.12) does."""
    batch = FutureProduceResult(TopicPartition("out", 0))
    batch.success((-1, -1, find_error))
    return batch


def aborted(error: Exception) -> FutureProduceResult:
    """Return a batch that the client has failed with the error of another one, before it was sent."""
    batch = FutureProduceResult(TopicPartition("out", 1))
    batch.failure(error)
    return batch


@pytest.mark.parametrize("innocent", [1, 3])
@pytest.mark.parametrize("error", [errors.InvalidRecordError, errors.InvalidTimestampError, errors.MessageSizeTooLargeError])
def test_what_was_not_sent_when_the_brokers_refused_a_record_is_not_accused(innocent: int, error: type[Exception]) -> None:
    """When the first of them was accused, one after the other became a dead letter, until a dead letter itself was accused."""
    shared = error("One or more records have been rejected")
    part = errors.KafkaError("Failed to append record because it was part of a batch")
    batch = answered(lambda index: error(NO_KEY) if index == 1 else part)
    others = [future_of(aborted(shared), size=500) for _ in range(innocent)]
    futures = [*others, future_of(batch, 0), future_of(batch, 1), future_of(aborted(shared), size=500)]
    found = refused_among(futures)
    assert (found.at, str(found.error)) == (innocent + 1, str(error(NO_KEY)))


@pytest.mark.parametrize(
    ("error", "is_for_its_time"),
    [
        (errors.InvalidRecordError(NO_KEY), False),
        (errors.InvalidRecordError(TOO_OLD), True),
        (errors.InvalidRecordError(TOO_OLD.replace("1000000000000", "-1")), True),
        (errors.InvalidRecordError("One or more records have been rejected due to invalid timestamp"), True),
        (errors.InvalidTimestampError(NO_KEY), True),
    ],
)
def test_a_topic_named_after_timestamps_makes_no_error_one_of_a_timestamp(error: Exception, is_for_its_time: bool) -> None:
    refused = refused_among([future_of(answered(lambda _: error))])
    assert refused.is_for_its_time is is_for_its_time
    assert refused.taken_times == (range(1, 3) if "within" in str(error) else range(0))


@pytest.mark.parametrize(
    ("at", "text", "remaining"),
    [
        (0, TOO_OLD, [None, 1, 2, None]),
        (3, TOO_OLD, [None, 1, 2, None]),
        (1, TOO_OLD, [None, None, 2, None]),  # It was within the times of a moment ago.
        (0, "One or more records have been rejected due to invalid timestamp", [None] * 4),
        (4, TOO_OLD, [None] * 4),
    ],
)
def test_only_timestamps_that_the_topic_refuses_are_replaced_if_the_brokers_name_those_that_it_takes(
    at: int, text: str, remaining: list[int | None]
) -> None:
    records = [ProducerRecord("out", None, (), None, timestamp=each) for each in (0, 1, 2, 3, None)]
    settings = KafkaSettings(KafkaTopics("in", "out", "dead"), {}, {})
    Fitting(settings, Topics(settings), FakeClock()).replace([], records, NotTaken(at, errors.InvalidTimestampError(text)))
    assert [each.timestamp for each in records] == [*remaining, None]
