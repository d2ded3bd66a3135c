"""The one place where the Kafka client's errors become the transport's."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from connectors.port import NotLetIn, TransportRefused, TransportUnavailable, TransportWithheld

_REMEDIES: tuple[tuple[type[errors.KafkaError], str], ...] = (
    (
        errors.TopicAuthorizationFailedError,
        "Give the user Read and Describe on the input topic, Write and Describe on the outputs",
    ),
    (errors.GroupAuthorizationFailedError, "Give the user Read on the group group.id"),
    (errors.TransactionalIdAuthorizationFailedError, "Give the user Write and Describe on the transactional ids of the group"),
    (errors.ClusterAuthorizationFailedError, "Give the user IdempotentWrite on the cluster"),
    (errors.UnsupportedSaslMechanismError, "Set sasl.mechanism to one that the brokers know"),
    (errors.IllegalSaslStateError, "Check security.protocol and sasl.mechanism against the listener"),
    (errors.InvalidSessionTimeoutError, "Set session.timeout.ms within the brokers' group.min/max.session.timeout.ms"),
    (errors.InvalidTransactionTimeoutError, "Set transaction.timeout.ms below the brokers' transaction.max.timeout.ms"),
    (errors.InconsistentGroupProtocolError, "Another program is in the group: give the service a group.id of its own"),
    (errors.InvalidGroupIdError, "Set another group.id"),
    (errors.GroupMaxSizeReachedError, "Run fewer workers, or raise the brokers' group.max.size"),
    (errors.FencedInstanceIdError, "Another worker runs with the same group.instance.id: give each its own"),
    (errors.OffsetMetadataTooLargeError, "Set the brokers' offset.metadata.max.bytes to at least 4096"),
    (errors.InvalidTopicError, "Set another topic"),
    (errors.KafkaConfigurationError, "Correct it in kafka-clients"),
    (errors.UnsupportedCodecError, "Install what it names"),
    (errors.UnsupportedVersionError, "Brokers from version 2.5 on are needed"),
    (errors.UnrecognizedBrokerVersion, "Brokers from version 2.5 on are needed"),
    (errors.LogTruncationError, "The brokers lost records that had been read: restore them, or reset the group's position"),
    (errors.OffsetOutOfRangeError, "Records were taken by the retention before they were read: start again to hear which"),
    (
        errors.CorruptRecordError,
        "Its bytes were changed on the way or on a broker's disk: let a replica lead the partition, or restore it; to go on "
        "without them, delete the records up to and with it (kafka-delete-records) and reset the group's position",
    ),
)

_RIGHTS = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise what the port promises instead of a KafkaError; `what` names what was being asked for.

    What a person has to mend is refused; everything else may go away by itself.
    """
    try:
        yield
    except errors.KafkaError as error:
        raise to_transport_error(what, error) from error


LOGIN = "security.protocol, sasl.mechanism, sasl.username and sasl.password"
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_NOT_LET_IN = ("SaslAuthenticationFailedError", "socket disconnected")
"""Mostly the latter is all that is left of a wrong password, for the client drops an answer that comes with the end of its
connection. It is waited for: passwords are changed on one side first."""


def to_transport_error(what: str, error: BaseException) -> TransportRefused | TransportUnavailable:
    """As `translated`, for an error that was caught already. Of some the client leaves nothing but the name in a text."""
    for family, remedy in _REMEDIES:
        if isinstance(error, family) or (type(error) is errors.KafkaError and family.__name__ in str(error)):
            kind = TransportWithheld if family in _RIGHTS else TransportRefused
            return kind(what, f"{text_of(error)}. {remedy}")
    text = text_of(error)
    if _UNTRUSTED in text:
        return TransportRefused(what, f"{text}. Check ssl.truststore.location, and the names in the brokers' certificates")
    if any(each in text for each in _NOT_LET_IN):
        return NotLetIn(f"{what}: {text}; if that goes on, check {LOGIN}")
    return TransportUnavailable(f"{what}: {text}")


def text_of(error: BaseException) -> str:
    """One line, without the number that nobody looks up."""
    text = " ".join(str(error).split())
    return text.split("] ", 1)[1] if text.startswith("[Error ") and "] " in text else text or type(error).__name__
