"""Making clients of kafka-python so that nothing of them is left behind when they cannot be made."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from socket import socket
from typing import Any, TypeVar

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net import manager
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport
from kafka.record import memory_records

from connectors.kafka.errors import to_transport_error
from connectors.kafka.record_batch import RecordBatch

_Made = TypeVar("_Made")


class _LastWords(logging.Handler):
    """Keeps why a connection could not be made: the clients themselves say only that time was up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.error: KafkaError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for said in record.args if isinstance(record.args, tuple) else ():
            if isinstance(said, KafkaError) and not isinstance(said, KafkaTimeoutError):
                self.error = said


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python ships no types.
    """As the client connects without a proxy, but that a socket which could not connect is closed.

    Otherwise one more stays open with each try until a garbage collection, and a night without brokers uses up all that a
    process may open.
    """

    SCHEMES = ("direct",)

    async def sock_connect(self, net: Any, sock: socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _ClosingTransport(KafkaSSLTransport):  # type: ignore[misc]  # kafka-python ships no types.
    """The same for a socket over which no TLS comes about, as when a balancer stands before brokers that are away."""

    async def handshake(self) -> None:
        try:
            await super().handshake()
        except BaseException:
            self.close()
            raise


# The clients know no other way to be given these.
manager.KafkaSSLTransport = _ClosingTransport
memory_records.DefaultRecordBatch = RecordBatch


class OurNetClient(KafkaNetClient):  # type: ignore[misc]  # kafka-python ships no types.
    """The network half of a client. It never has a topic made: one that is mistyped is an error, whatever the brokers allow."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # The clients' own option of this name does not get here in kafka-python 3.0.
        self.cluster.config["allow_auto_create_topics"] = False


def make_client(what: str, make: Callable[..., _Made], options: Mapping[str, Any]) -> _Made:
    """A client of kafka-python, connected. A constructor that fails leaves a thread and its sockets behind: here they are closed.

    Raises:
        TransportUnavailable: No broker answered within `bootstrap_timeout_ms`; the text has the reason if there is one.
        TransportRefused: The brokers do not let us in.
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
    """Half made, they may fail in any way; what matters is being raised already."""
    for each in halves:
        with suppress(Exception):
            each.close()
