"""From an envelope's arrival to its notification: `python -m benchmarks.latency [--rate 500] [--only files]`.

Envelopes come at a steady rate, in order, so that none waits for another. On `files` a worker process runs (`resequencer run`:
file transport, embedded storage, both synced). An envelope's time starts when its line is written and ends when its notification
can be read; the output is checked a thousand times a second. On Kafka, in a topic of four partitions, it starts when the broker
appended the envelope, by its timestamp, and ends when a `read_committed` reader, a process of its own, gets the output. There
the bare loop (`_kafka_loop.py`) is measured beside the worker with each storage. The first seconds are a warm-up and do not
count.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import msgspec

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._runner import Case, Figures, WrongResult, arguments, at_quantiles, directory, measure, steadily, wanted
from benchmarks._servers import GIVE_UP_SECONDS, Servers, bare, input_of, key_of, records_of, running, seen_at, worker
from benchmarks._worker import PARTITION
from benchmarks._workload import command, made
from guardian.headers import ENVELOPE_ID, SOURCE_POSITION
from resequencer.record import Origin, Partition

WARM_UP_SECONDS = 5
_STORAGES = ("redis", "infinispan")
_LOOK_EVERY_S = 0.001


def on_servers(servers: Servers, name: str, lines: list[bytes], rate: float) -> Figures:
    topic = f"in-{name.replace(' ', '-')}-{time.monotonic_ns()}"
    output = list(bare_loop(lines, PARTITION, checked))
    run = servers.new_run(name, topic, len(lines), output)
    servers.make_topics(topic, message_timestamp_type="LogAppendTime")
    notified = {msgspec.json.decode(each)["headers"][SOURCE_POSITION] for each in output}
    expected = len(lines) if name == "bare loop" else len(notified)
    with get_context("spawn").Pool(2) as processes:
        program, given = (bare, (run, 500)) if name == "bare loop" else (worker, (run, name, 500))
        working = processes.apply_async(program, given)
        reading = processes.apply_async(seen_at, (run, f"out-{run.name}", SOURCE_POSITION, expected))
        run.wait_until_ready()
        with input_of(run, linger_ms=0) as sink:
            for line in steadily(lines, rate):
                sink.append(sink.partition_of(key_of(line)), line)
        seen = reading.get()
        working.get()
    arrived = {
        str(Origin(Partition(each.topic, each.partition), each.offset)): each.timestamp / 1_000
        for each in records_of(servers, topic)
    }
    return _quantiles(arrived, seen, expected)


def on_files(lines: list[bytes], rate: float) -> Figures:
    expected = len({_notified(line) for line in bare_loop(lines, PARTITION, checked)})
    written: dict[str, float] = {}
    with directory() as place:
        for each in ("in", "out"):
            (place / each).mkdir()
        file = place / "in" / "partition-0.jsonl"
        file.touch()
        with _running(place):
            writing = Thread(target=_write, args=(file, lines, rate, written))
            writing.start()
            seen = _seen_in_file(place / "out" / "notifications.jsonl", expected)
            writing.join()
    return _quantiles(written, seen, expected)


def _write(file: Path, lines: list[bytes], rate: float, written: dict[str, float]) -> None:
    ids = [checked(line, Origin(PARTITION, 0)).envelope_id for line in lines]
    with file.open("ab", buffering=0) as opened:
        for identity, line in steadily(list(zip(ids, lines, strict=True)), rate):
            opened.write(line)
            written[identity] = time.time()


def _seen_in_file(file: Path, count: int) -> dict[str, float]:
    """Return when each of so many notifications could first be read, by the envelope's id."""
    seen, remainder = dict[str, float](), b""
    give_up = time.time() + GIVE_UP_SECONDS
    descriptor = os.open(file, os.O_RDONLY | os.O_CREAT)
    while len(seen) < count and time.time() < give_up:
        time.sleep(_LOOK_EVERY_S)
        if content := os.read(descriptor, 1 << 24):
            now = time.time()
            *lines, remainder = (remainder + content).split(b"\n")
            seen |= dict.fromkeys(map(_notified, lines), now)
    os.close(descriptor)
    return seen


def _notified(line: bytes) -> str:
    identity: str = msgspec.json.decode(line)["headers"][ENVELOPE_ID]
    return identity


@contextmanager
def _running(place: Path) -> Iterator[None]:
    """Run a worker that is ready; drain it at the end."""
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command("run", place), stdout=log, stderr=log)
    try:
        while subprocess.run(command("status", place), stdout=subprocess.DEVNULL, check=False).returncode:
            assert process.poll() is None, (place / "log").read_text(encoding="utf-8")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def _quantiles(begun: dict[str, float], seen: dict[str, float], expected: int) -> Figures:
    if len(seen) != expected:
        raise WrongResult(f"{expected} envelopes have output, {len(seen)} were seen")
    counts_from = min(begun.values()) + WARM_UP_SECONDS
    return at_quantiles([(seen[each] - at) * 1_000 for each, at in begun.items() if each in seen and at >= counts_from])


def main() -> None:
    chosen = arguments(__doc__, rate=500.0, seconds=20.0)
    names = [name for name in ("bare loop", "none", *_STORAGES) if wanted(chosen, name)]
    with made(round(chosen.rate * chosen.seconds), window=0, duplicates="0") as workload:
        lines = workload.read()
        print(f"{len(lines)} envelopes at {chosen.rate:g} a second; milliseconds from arrival to visible", flush=True)
        if wanted(chosen, "files"):
            measure(chosen, [Case("files", partial(on_files, lines, chosen.rate))])
        if names:
            with running("kafka", *(name for name in _STORAGES if name in names)) as servers:
                run = partial(on_servers, servers, lines=lines, rate=chosen.rate)
                cases = [Case(name, partial(run, name), "bare loop" if "bare loop" in names else "") for name in names]
                measure(chosen, cases, {"p50": -1, "p99": -1})


if __name__ == "__main__":
    main()
