"""Makes clients of kafka-python, and cleans up after a client that could not be made."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from socket import socket
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from kafka import errors
from kafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError
from kafka.net import manager
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.record import memory_records

from guardian.ports import NotLetIn, TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.kafka.record_batch import RecordBatch

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
        return NotLetIn(f"{what}: {text}; if this continues, check {LOGIN}")
    return TransportUnavailable(f"{what}: {text}")


def text_of(error: BaseException) -> str:
    """Return the error as one line, without the client's error number."""
    text = " ".join(str(error).split())
    return text.split("] ", 1)[1] if text.startswith("[Error ") and "] " in text else text or type(error).__name__


ADDRESS = "ipf.processing-data.ingress.kafka.consumer.kafka-clients.bootstrap.servers"
"""The key of the brokers' addresses. The producer connects to the same ones."""

_Made = TypeVar("_Made")


class _FailureReason(logging.Handler):
    """Keeps the reason why a connection failed: the clients themselves only report a time-out.

    The last try is cut short when the time is over. Its time-out does not replace what an earlier try found out.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.error: KafkaError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            is_timeout = isinstance(argument, RequestTimedOutError) and self.error is not None
            if isinstance(argument, KafkaError) and not isinstance(argument, KafkaTimeoutError) and not is_timeout:
                self.error = argument


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python ships no types.
    """The client's socket for direct connections, with one change: a socket that could not connect is closed.

    Otherwise each try keeps one socket open until the next garbage collection. A night without brokers would exhaust the
    process's file descriptors.
    """

    SCHEMES = ("direct",)

    async def sock_connect(self, net: Any, sock: socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


_connections: WeakKeyDictionary[NetworkSelector, WeakSet[KafkaTCPTransport]] = WeakKeyDictionary()
"""The connections of each client's event loop."""


class _Connection(KafkaTCPTransport):  # type: ignore[misc]  # kafka-python ships no types.
    """A connection that its client closes at the latest when it is closed itself.

    Otherwise a connection with unsent bytes stays open: the client lets it send them later, and then stops its event loop.
    """

    def __init__(self, net: NetworkSelector, sock: socket, host: str | None = None, **options: Any) -> None:
        super().__init__(net, sock, host, **options)
        _connections.setdefault(net, WeakSet()).add(self)

    def close_socket(self) -> None:
        if self._sock is not None:
            self._sock.close()


class _TlsConnection(_Connection, KafkaSSLTransport):  # type: ignore[misc]  # kafka-python ships no types.
    """Closes a socket whose TLS handshake fails too, as behind a load balancer without live brokers."""

    async def handshake(self) -> None:
        try:
            await super().handshake()
        except BaseException:
            self.close()
            raise


# kafka-python offers no other way to replace these classes.
manager.KafkaTCPTransport = _Connection
manager.KafkaSSLTransport = _TlsConnection
memory_records.DefaultRecordBatch = RecordBatch


class OurNetClient(KafkaNetClient):  # type: ignore[misc]  # kafka-python ships no types.
    """The network half of a client. It never creates topics: a mistyped topic is an error, whatever the brokers allow."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # kafka-python 3.0 does not pass the clients' option of this name on to this place.
        self.cluster.config["allow_auto_create_topics"] = False

    def close(self, node_id: object = None) -> None:
        super().close(node_id)
        if node_id is None:
            for each in _connections.pop(self._net, ()):
                each.close_socket()


def make_client(what: str, make: Callable[..., _Made], options: Mapping[str, Any]) -> _Made:
    """Make a connected client of kafka-python. If the constructor fails, close the thread and the sockets that it leaves.

    Raises:
        TransportUnavailable: No broker answered within `bootstrap_timeout_ms`; the text holds the reason if one is known.
        TransportRefused: The brokers refuse the login. Both texts name the addresses and their key.
    """
    what = f"{what} at {options['bootstrap_servers']} ({ADDRESS})"
    halves: list[OurNetClient] = []

    def network(**given: Any) -> OurNetClient:
        halves.append(OurNetClient(**given))
        return halves[-1]

    failure, log = _FailureReason(), logging.getLogger("kafka.net.manager")
    log.addHandler(failure)
    try:
        return make(**options, kafka_client=network, proxy_url="direct://")
    except KafkaError as error:
        _close(halves)
        reason = failure.error if isinstance(error, KafkaTimeoutError) else None
        raise to_transport_error(what, reason or error) from error
    except BaseException:
        _close(halves)
        raise
    finally:
        log.removeHandler(failure)


def _close(halves: Iterable[OurNetClient]) -> None:
    """Close clients that are only half made. Their errors are ignored; the caller raises the original one."""
    for each in halves:
        with suppress(Exception):
            each.close()


_Answer = TypeVar("_Answer")


class Bounded:
    """Runs calls one after the other in a daemon thread of its own.

    It cannot be used again after a call that timed out: that call is still running in the thread, and may still take effect.
    """

    def __init__(self) -> None:
        self._questions: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread: Thread | None = None

    def call(self, call: Callable[[], _Answer], timeout_ms: int) -> _Answer:
        """Run the call; return its result, or raise its error.

        Raises:
            KafkaTimeoutError: The call did not end in time.
        """
        if self._thread is None:
            self._thread = Thread(target=self._answer, name="kafka-bounded", daemon=True)
            self._thread.start()
        self._questions.put(call)
        try:
            answer, error = self._answers.get(timeout=timeout_ms / 1000)
        except Exception as empty:
            raise KafkaTimeoutError(f"no answer within {timeout_ms} ms") from empty
        if error is not None:
            raise error
        return answer  # type: ignore[no-any-return]  # What the call returned.

    def close(self) -> None:
        """Let the thread end once its call has returned."""
        self._questions.put(None)

    def _answer(self) -> None:
        while (call := self._questions.get()) is not None:
            try:
                self._answers.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - Any error is raised again in the calling thread.
                self._answers.put((None, error))
