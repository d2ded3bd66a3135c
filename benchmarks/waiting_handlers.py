"""A handler that calls a server: `python -m benchmarks.waiting_handlers [--latency-ms 20]`.

A user's own handler makes a request for each envelope, over connections that stay open, and an HTTP server in a process of its
own answers it after `latency-ms`. (With httpx its pool of connections would be measured, which makes 120 requests a second, 64
at a time.) The whole worker runs: file transport and embedded storage, both synced. The envelopes come in order, none twice.

First envelopes per second: with the handler within the turn (synchronous), and beside it (`async def`) with one call at a time
and with 64, for many units and for one. Of one unit there are at most 1 / (latency + cycle).

Then the milliseconds from an envelope's line to its notification at `rate` envelopes a second, without and with 32 units whose
requests are never answered: those of the other units must be the same.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from benchmarks._bare_loop import checked
from benchmarks._runner import Case, Figures, Stopwatch, apart, arguments, directory, measure, milliseconds
from benchmarks._worker import PARTITION, Workload, composed, made, override
from benchmarks.latency import written_and_seen
from notification_service.api import Message
from notification_service.supervision.stop_signal import StopSignal
from resequencer.record import Origin

_PORT, _HANGING = "BENCHMARK_PORT", "BENCHMARK_HANGING"
_HUNG_UNITS = 32
_REQUEST = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class InTurn:
    """Makes each request within the turn."""

    def __init__(self, settings: object) -> None:
        del settings
        self._connection = socket.create_connection(_address())

    def handle(self, envelope: Any, *_: object) -> list[Message]:
        self._connection.sendall(_REQUEST % b"/")
        while not self._connection.recv(4_096).endswith(_ANSWER[-2:]):
            pass
        return _messages(envelope)


class Beside:
    """Makes requests beside the turns. Those of the units that `_HANGING` names are never answered."""

    def __init__(self, settings: object) -> None:
        del settings
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._hanging = frozenset(os.environ.get(_HANGING, "").split())

    async def handle(self, envelope: Any, *_: object) -> list[Message]:
        reader, writer = connection = self._free.pop() if self._free else await asyncio.open_connection(*_address())
        writer.write(_REQUEST % (b"/hang" if envelope.unit in self._hanging else b"/"))
        await reader.readexactly(len(_ANSWER))
        self._free.append(connection)
        return _messages(envelope)


def _address() -> tuple[str, int]:
    return "127.0.0.1", int(os.environ[_PORT])


def _messages(envelope: Any) -> list[Message]:
    return [Message(number, "ACSP", b"{}") for number in range(len(envelope.process_objects))]


@contextmanager
def answering(latency_ms: int) -> Iterator[None]:
    """Run the HTTP server, whose address the handlers find in the environment."""
    ours, its = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve, args=(its, latency_ms), daemon=True)
    process.start()
    os.environ[_PORT] = str(ours.recv())
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _serve(port: Connection, latency_ms: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(3_600 if request.startswith(b"GET /hang") else latency_ms / 1_000)
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def through(handler: str, concurrency: int, workload: Workload) -> Figures:
    """Return how many envelopes a second a worker handles until all are published."""
    with directory() as place:
        (place / "in").mkdir()
        (place / "in" / "partition-0.jsonl").write_bytes(b"".join(workload.read()))
        chosen = (override("handler", f"benchmarks.waiting_handlers:{handler}"), _concurrency(concurrency))
        parts, watch = composed(place, "embedded", *chosen, wait=StopSignal().wait), Stopwatch()
        cycle = parts.cycle
        while cycle.metrics.counts["handled"] < workload.lines or any(
            each.unpublished for each in cycle.partitions.owned.values()
        ):
            cycle.run_once()
        figures = watch.spent().of_each(workload.lines)
        parts.servers.actors.close()
        return figures


def _concurrency(count: int) -> str:
    return f"payment-status-notification.resequencer.handling-concurrency={count}"


def of_others(workload: Workload, rate: float, *, hangs: bool) -> Figures:
    """Return the milliseconds until the notifications of the units that do not hang."""
    lines = workload.read()
    envelopes = [checked(each, Origin(PARTITION, 0)) for each in lines]
    hung = list(dict.fromkeys(each.unit for each in envelopes))[:_HUNG_UNITS]
    notified = {each.envelope_id: each.unit in hung for each in envelopes if each.process_objects}
    os.environ[_HANGING] = " ".join(hung) if hangs else ""
    of_handler = override("handler", "benchmarks.waiting_handlers:Beside"), override("resequencer.processing-timeout", "10m")
    limits = override("resequencer.handling-limit", "20m"), override("resequencer.idle-timeout", "30m")
    expected = sum(not (hangs and is_hung) for is_hung in notified.values())
    written, seen = written_and_seen(lines, rate, expected, *of_handler, *limits)
    return milliseconds({each: at for each, at in written.items() if not notified.get(each, True)}, seen)


def main() -> None:
    chosen = arguments(__doc__, latency_ms=20, envelopes=5_000, rate=100.0, seconds=20.0)
    in_order = ("--window", 0, "--duplicates", 0)
    with answering(chosen.latency_ms):
        with made(chosen.envelopes, *in_order) as many, made(8, *in_order) as one:
            few = Workload(many.file, many.lines // 20)
            cases = [
                Case("in the turn", partial(apart, through, "InTurn", 1, few)),
                Case("beside, 1 at a time", partial(apart, through, "Beside", 1, few), "in the turn"),
                Case("beside, 64 at a time", partial(apart, through, "Beside", 64, many), "in the turn"),
                Case("beside, one unit", partial(apart, through, "Beside", 64, one), "in the turn"),
            ]
            measure(chosen, cases)
        chosen.benchmark += "-latency"
        with made(round(chosen.rate * chosen.seconds), *in_order) as steady:
            cases = [
                Case("no unit hangs", partial(of_others, steady, chosen.rate, hangs=False)),
                Case(f"{_HUNG_UNITS} units hang", partial(of_others, steady, chosen.rate, hangs=True), "no unit hangs"),
            ]
            measure(chosen, cases, {"p50": -1, "p99": -1})


if __name__ == "__main__":
    main()
