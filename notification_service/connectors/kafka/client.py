"""Makes clients of kafka-python, and cleans up after a client that could not be made."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from socket import socket
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from kafka.errors import KafkaError, KafkaTimeoutError, RequestTimedOutError
from kafka.net import manager
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.record import memory_records

from notification_service.connectors.kafka.errors import to_transport_error
from notification_service.connectors.kafka.record_batch import RecordBatch

_Made = TypeVar("_Made")


class _LastWords(logging.Handler):
    """Keeps the reason why a connection failed: the clients themselves only report a time-out.

    The last try is cut short when the time is over. Its time-out does not replace what an earlier try found out.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.error: KafkaError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for said in record.args if isinstance(record.args, tuple) else ():
            is_timeout = isinstance(said, RequestTimedOutError) and self.error is not None
            if isinstance(said, KafkaError) and not isinstance(said, KafkaTimeoutError) and not is_timeout:
                self.error = said


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python ships no types.
    """The client's socket for direct connections, with one change: a socket that could not connect is closed.

    Otherwise each try leaves one socket open until the next garbage collection. A night without brokers would exhaust the
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
        TransportRefused: The brokers refuse the login.
    """
    halves: list[OurNetClient] = []

    def network(**given: Any) -> OurNetClient:
        halves.append(OurNetClient(**given))
        return halves[-1]

    last_words, log = _LastWords(), logging.getLogger("kafka.net.manager")
    log.addHandler(last_words)
    try:
        return make(**options, kafka_client=network, proxy_url="direct://")
    except KafkaError as error:
        _close(halves)
        reason = last_words.error if isinstance(error, KafkaTimeoutError) else None
        raise to_transport_error(what, reason or error) from error
    except BaseException:
        _close(halves)
        raise
    finally:
        log.removeHandler(last_words)


def _close(halves: Iterable[OurNetClient]) -> None:
    """Close clients that are only half made. Their errors are ignored; the caller raises the original one."""
    for each in halves:
        with suppress(Exception):
            each.close()
