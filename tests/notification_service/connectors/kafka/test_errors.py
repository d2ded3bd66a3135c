"""Errors of the Kafka client as errors of the transport: which need a person, and which may pass by themselves."""

from uuid import UUID

import pytest
from kafka import errors

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.client import to_transport_error, translated
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.topics import recreated


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.TopicAuthorizationFailedError({"in"}), "Give the user Read and Describe on the input topic"),
        (errors.GroupAuthorizationFailedError("g"), "Give the user Read on the group"),
        (errors.FencedInstanceIdError(), "the same group.instance.id: give each its own"),
        (errors.CorruptRecordError("crc"), "Its bytes were changed on the way"),
        (
            errors.KafkaError("Unexpected error in TxnOffsetCommitResponse: [Error 12] OffsetMetadataTooLargeError"),
            "offset.metadata.max",
        ),
    ],
)
def test_what_a_person_must_mend_is_refused_with_the_remedy(error: errors.KafkaError, remedy: str) -> None:
    refused = to_transport_error("reading", error)
    assert isinstance(refused, TransportRefused)
    assert refused.what == "reading"
    assert remedy in refused.problem


@pytest.mark.parametrize(
    "error", [errors.KafkaTimeoutError("late"), errors.NotLeaderForPartitionError(), errors.KafkaError("odd")]
)
def test_everything_else_may_go_away(error: errors.KafkaError) -> None:
    with pytest.raises(TransportUnavailable, match=r"^reading: "), translated("reading"):
        raise error


@pytest.mark.parametrize(
    "error", [errors.SaslAuthenticationFailedError("no"), errors.KafkaConnectionError("socket disconnected")]
)
def test_a_client_that_is_not_let_in_waits_and_is_told_where_to_look(error: errors.KafkaError) -> None:
    away = to_transport_error("the brokers", error)
    assert isinstance(away, TransportUnavailable)
    assert "check security.protocol, sasl.mechanism, sasl.username and sasl.password" in str(away)


def test_what_is_no_error_of_the_client_passes() -> None:
    with pytest.raises(ZeroDivisionError), translated("reading"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ("", "give up the waiting envelopes, {} and set another payment-status-notification.storage.namespace"),
        ("V", "give up what was counted, {} and delete the topic V"),
    ],
)
def test_an_input_that_was_recreated_is_refused_with_the_remedy_of_who_reads_it(values: str, remedy: str) -> None:
    error = recreated(KafkaTopics("in", "out", "dead", values=values), UUID(int=1), UUID(int=2))
    assert error.what == "topic in"
    assert remedy.format("delete the group's offsets (kafka-consumer-groups --delete-offsets)") in str(error)
