"""Deliveries per second of a delivery worker, and of a bare loop with httpx that makes the same calls to the same receiver."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks._delivery.stage import JOB, Database, Run, WrongResult, new_run, take_in, write_notifications
from benchmarks._processes import cpu_of_family
from guardian.headers import NOTIFICATION_ID
from notification_service.connectors.line_format import Line, decode_line
from notification_service.delivery.source_reader import Sources
from notification_service.delivery.worker import DeliveryWorker
from notification_service.simulator.receiver.check import Comparison, compare
from notification_service.wiring.delivery.sources import open_feed
from servers.receiver import ReceiverServer

LOOP = "bare loop"
GOAL = 0.7
"""The goal for the worker's deliveries per second, of those of the bare loop."""


class Measured(NamedTuple):
    """Seconds until everything was delivered, and CPU seconds of the client's process, of the receiver's and of PostgreSQL's."""

    wall: float
    client: float
    receiver: float
    database: float


def deliveries(database: Database, count: int, concurrency: int, rounds: int) -> dict[str, Measured]:
    """Return the best round of loop and worker, which take turns, each in a process of its own with a receiver of its own.

    Raises:
        WrongResult: One of them has not delivered each notification exactly once, or the worker not in the order of a unit.
    """
    file = database.directory / "notifications.jsonl"
    pairs = write_notifications(file, count)
    measured: dict[str, list[Measured]] = {LOOP: [], database.name: []}
    for _ in range(rounds):
        for name, spent in measured.items():
            client = loop if name == LOOP else worker
            spent.append(measure(client, database, file, pairs, concurrency))
    return {name: min(spent) for name, spent in measured.items()}


Client = Callable[[Run, Path, str, int], tuple[float, float]]
"""Delivers what a file holds to the receiver at a URL, with so many calls at once; returns the time and its CPU, in seconds."""


def loop(_: Run, file: Path, url: str, concurrency: int) -> tuple[float, float]:
    """A bare loop: neither a ledger nor an order, and nothing is done after an error."""
    with file.open("rb") as lines:
        calls = [each for line in lines if isinstance(each := decode_line(line.rstrip(b"\n")), Line)]
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(_call_all(iter(calls), url, concurrency))
    return time.perf_counter() - wall, time.process_time() - cpu


def worker(run: Run, file: Path, _: str, concurrency: int) -> tuple[float, float]:
    """A delivery worker. The rows are in the ledger when the clock starts; it stops with the job's completion."""
    with run.ledger() as ledger:
        take_in(run, ledger, file)
        configuration, events = run.configuration(), list[object]()
        assert configuration.delivery.receivers[0][1].concurrency == concurrency
        deliverer = DeliveryWorker(
            ledger,
            configuration.delivery.worker,
            "benchmark",
            Sources("live", partial(open_feed, configuration)),
            lambda: events.extend(ledger.events.after(0, 1)),
        )
        began, cpu = time.time(), time.process_time()
        deliverer.run(lambda: bool(events))
        job = ledger.find_job(JOB)
        assert job is not None
        assert job.completed_at is not None
        return job.completed_at / 1_000 - began, time.process_time() - cpu


def measure(client: Client, database: Database, file: Path, pairs: Sequence[tuple[str, str]], concurrency: int) -> Measured:
    """Let the client run in a process of its own, with a receiver of its own.

    Raises:
        WrongResult: What the receiver took is not what `pairs` say.
    """
    with _receiver(database) as receiver:
        run = new_run(database, receiver.url, concurrency)
        process = receiver.process
        assert process is not None
        others = [process.pid, *([] if database.process is None else [database.process])]
        before = [cpu_of_family(each) for each in others]
        with get_context("spawn").Pool(1) as processes:
            wall, cpu = processes.apply(client, (run, file, receiver.url, concurrency))
            used = [cpu_of_family(each) - began for each, began in zip(others, before, strict=True)]
        _check(compare(receiver.data, pairs), in_order=client is not loop)
    return Measured(wall, cpu, used[0], sum(used[1:]))


async def _call_all(calls: Iterator[Line], url: str, concurrency: int) -> None:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=10, trust_env=False) as client:

        async def call_some() -> None:
            for call in calls:
                headers = dict(call.headers)
                told = {"content-type": b"application/json", "idempotency-key": headers[NOTIFICATION_ID], **headers}
                encoded = [(name.encode(), value) for name, value in told.items()]
                answer = await client.post(
                    f"/payments/{(call.key or b'').decode()}/statuses", content=call.value, headers=encoded
                )
                answer.raise_for_status()

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(call_some())


def _check(found: Comparison, *, in_order: bool) -> None:
    if found.lost or found.doubled or found.unexpected or (in_order and found.misplaced):
        raise WrongResult(found.table())


@contextmanager
def _receiver(database: Database) -> Iterator[ReceiverServer]:
    directory = database.directory / f"receiver-{time.monotonic_ns()}"
    receiver = ReceiverServer(directory).start()
    try:
        yield receiver
    finally:
        receiver.kill()
