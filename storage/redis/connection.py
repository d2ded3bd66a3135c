"""One connection to one Redis server."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import NoScriptError, ResponseError

from storage.redis.errors import translated
from storage.redis.url import Address, RedisPlace, address_text

Command = Sequence[bytes | str | int]


class Link:
    """One connection, opened on first use, closed after any error, and reopened by the next call. Used from one thread.

    redis-py's clients repeat commands on their own, over any connection of a pool. Here the caller must know what was sent, and
    `WAIT` refers to the connection that it is sent over.
    """

    def __init__(self, place: RedisPlace, address: Address, timeout_ms: int) -> None:
        self.address = address
        self.name = f"Redis {address_text(address)}"
        self._make = _maker(place, address, timeout_ms / 1_000)
        self._connection: Any = None

    def ask(self, *commands: Command) -> list[Any]:
        """Send commands in one packet and return their answers. A `NoScriptError` is returned; any other error is raised.

        Raises:
            StorageUnavailable, StorageRefused: As `translated`.
        """
        with translated(self.name):
            try:
                return self._ask(commands)
            except BaseException:
                # A late answer must not be taken for the answer to the next command.
                self.close()
                raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _ask(self, commands: Sequence[Command]) -> list[Any]:
        if self._connection is None:
            self._connection = self._make()
            self._connection.connect()
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        answers = [self._read() for _ in commands]
        for answer in answers:
            if isinstance(answer, ResponseError) and not isinstance(answer, NoScriptError):
                raise answer
        return answers

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error


def _maker(place: RedisPlace, address: Address, timeout: float) -> Callable[[], Any]:
    host, port = address
    kind: Any = UnixDomainSocketConnection if place.is_socket else SSLConnection if place.is_tls else Connection
    where = {"path": host} if place.is_socket else {"host": host, "port": port, "socket_keepalive": True}
    bounds = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    return partial(kind, **where, **bounds, **place.options, protocol=2, driver_info=None)
