"""Translates errors of the Kafka client into those of the transport; the only place that does."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from guardian.ports import NotLetIn, TransportRefused, TransportUnavailable, TransportWithheld

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
    (errors.UnsupportedCodecError, "Install the library that the message names"),
    (errors.UnsupportedVersionError, "Brokers from version 2.5 on are needed"),
    (errors.UnrecognizedBrokerVersion, "Brokers from version 2.5 on are needed"),
    (errors.LogTruncationError, "The brokers lost records that had been read: restore them, or reset the group's position"),
    (errors.OffsetOutOfRangeError, "Retention deleted records before they were read: restart the service to see which"),
    (
        errors.CorruptRecordError,
        "Its bytes were changed on the way or on a broker's disk: make another replica the leader, or restore the log. To skip "
        "the records, delete them up to and including this one (kafka-delete-records) and reset the group's position",
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
    """Raise the port's errors instead of a KafkaError; `what` names the object of the call.

    An error that needs an operator becomes a TransportRefused. Any other may pass by itself: a TransportUnavailable.
    """
    try:
        yield
    except errors.KafkaError as error:
        raise to_transport_error(what, error) from error


LOGIN = "security.protocol, sasl.mechanism, sasl.username and sasl.password"
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_NOT_LET_IN = ("SaslAuthenticationFailedError", "socket disconnected")
"""Texts of a refused login. Often only the latter remains of a wrong password, because the client drops an answer that arrives
with the end of its connection. The service keeps trying: when a password changes, one side changes first."""


def to_transport_error(what: str, error: BaseException) -> TransportRefused | TransportUnavailable:
    """Translate an error that was caught already. Of some errors the client keeps only the name, within a text."""
    for family, remedy in _REMEDIES:
        if isinstance(error, family) or (type(error) is errors.KafkaError and family.__name__ in str(error)):
            kind = TransportWithheld if family in _RIGHTS else TransportRefused
            return kind(what, f"{text_of(error)}. {remedy}")
    text = text_of(error)
    if _UNTRUSTED in text:
        return TransportRefused(what, f"{text}. Check ssl.truststore.location, and the names in the brokers' certificates")
    if any(each in text for each in _NOT_LET_IN):
        return NotLetIn(f"{what}: {text}; if this goes on, check {LOGIN}")
    return TransportUnavailable(f"{what}: {text}")


def text_of(error: BaseException) -> str:
    """Return the error as one line, without the client's error number."""
    text = " ".join(str(error).split())
    return text.split("] ", 1)[1] if text.startswith("[Error ") and "] " in text else text or type(error).__name__
