"""Making clients of kafka-python so that nothing of them is left behind when they cannot be made."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import socket
from typing import Any, TypeVar

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket

from connectors.kafka_errors import text_of, translated

_Made = TypeVar("_Made")


class _LastWords(logging.Handler):
    """Keeps why a connection failed last: the clients themselves say only that time was up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, str) and record.msg.startswith("Connection failed") and isinstance(record.args, tuple):
            self.text = " ".join(map(str, record.args))


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
        with translated(what):
            return _made(make, dict(options) | {"kafka_client": network, "proxy_url": "direct://"}, last_words)
    except BaseException:
        for each in halves:
            with suppress(Exception):  # Half made, it may fail in any way; what matters is being raised already.
                each.close()
        raise
    finally:
        log.removeHandler(last_words)


def _made(make: Callable[..., _Made], options: Mapping[str, Any], last_words: _LastWords) -> _Made:
    try:
        return make(**options)
    except errors.KafkaTimeoutError as error:
        raise errors.KafkaTimeoutError(last_words.text or text_of(error)) from error
