"""A port in front of another port, which treats the traffic as a bad network does."""

import asyncio
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from threading import Thread
from typing import Any, TypeVar

from harness.waiting import async_linger

_Answer = TypeVar("_Answer")
_HOST = "127.0.0.1"
_AT_ONCE = 65_536
_NO_LINGER = struct.pack("ii", 1, 0)


class Relay:
    """Listens on `port` and passes on to `target`, which may be set later. All methods may be called from any thread."""

    def __init__(self, chance: Random, target: int = 0) -> None:
        self.target = target
        self._chance = chance
        self._delay_seconds = 0.0
        self._connections: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._passes = asyncio.Event()
        self._passes.set()
        self._server = self._do(asyncio.start_server(self._serve, _HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def slow_down(self, seconds: float) -> None:
        """Delay each piece of data, from now on, by up to twice as many seconds; the pieces behind it wait with it."""
        self._delay_seconds = seconds

    def fall_silent(self) -> None:
        """Let nothing pass any more, without a sign to either side: connections stay open, new ones are accepted."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def cut(self) -> None:
        """Reset every connection. New ones are accepted."""
        self._do(self._cut())

    def half_close(self) -> None:
        """Close every connection on the server's side: clients read its end, but may continue to write."""
        self._do(self._half_close())

    def mend(self) -> None:
        self._delay_seconds = 0.0
        self._loop.call_soon_threadsafe(self._passes.set)

    def close(self) -> None:
        self.mend()
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(_HOST, self.target)
        except OSError:
            to_client.transport.abort()
            return
        self._connections[to_client] = to_server
        try:
            await asyncio.gather(self._pass_on(from_client, to_server), self._pass_on(from_server, to_client))
        finally:
            self._connections.pop(to_client, None)
            for each in (to_client, to_server):
                each.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError, RuntimeError):  # RuntimeError: the other side is half closed already.
            while data := await source.read(_AT_ONCE):
                if self._delay_seconds:
                    await async_linger(self._chance.uniform(0, 2 * self._delay_seconds))
                await self._passes.wait()
                target.write(data)
                await target.drain()
            target.write_eof()

    async def _cut(self) -> None:
        for pair in list(self._connections.items()):
            for each in pair:
                with suppress(OSError):  # The connection has just ended by itself.
                    each.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                each.transport.abort()

    async def _half_close(self) -> None:
        for to_client in list(self._connections):
            with suppress(OSError, RuntimeError):
                to_client.write_eof()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
