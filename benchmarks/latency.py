"""From an envelope's arrival to its notification: `python -m benchmarks.latency [--rate 500] [--only files]`.

Envelopes come at a steady rate, in order, so that none waits for another. On `files` a service runs (`resequencer start`:
file transport, embedded storage, both synced). An envelope's time starts when its line is written and ends when its notification
can be read; the output is checked a thousand times a second. On Kafka, in a topic of four partitions, it starts when the broker
appended the envelope, by its timestamp, and ends when a `read_committed` reader, a process of its own, gets the output. There
the bare loop (`_kafka_loop.py`) is measured beside the worker with each storage. The first seconds are a warm-up and do not
count.
"""

import time
from functools import partial
from pathlib import Path
from threading import Thread

import msgspec

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._runner import Case, Figures, WrongResult, arguments, directory, measure, milliseconds, steadily, wanted
from benchmarks._servers import GIVE_UP_SECONDS, Servers, bare, new_name, new_run, records_of, running, seen_steadily, worker
from benchmarks._worker import PARTITION, line_of, made, override, serving
from guardian.headers import ENVELOPE_ID, SOURCE_POSITION
from resequencer.record import Origin, Partition

_STORAGES = ("redis", "infinispan")
_LOOK_EVERY_S = 0.001


def on_servers(servers: Servers, name: str, lines: list[bytes], rate: float) -> Figures:
    output = list(bare_loop(lines, PARTITION, checked))
    run = new_run(servers, name, new_name("in"), len(lines), output)
    notified = {msgspec.json.decode(each)["headers"][SOURCE_POSITION] for each in output}
    expected = len(lines) if name == "bare loop" else len(notified)
    program = partial(bare, run) if name == "bare loop" else partial(worker, run, name)
    seen = seen_steadily(run, program, list(map(line_of, lines)), rate, f"out-{run.name}", SOURCE_POSITION, expected)
    origins = ((Origin(Partition(each.topic, each.partition), each.offset), each) for each in records_of(servers, run.topic))
    return milliseconds({str(origin): each.timestamp / 1_000 for origin, each in origins}, seen)


def on_files(lines: list[bytes], rate: float) -> Figures:
    expected = len({_notified(line) for line in bare_loop(lines, PARTITION, checked)})
    return milliseconds(*written_and_seen(lines, rate, expected))


def written_and_seen(
    lines: list[bytes], rate: float, expected: int, *overrides: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each envelope was written, and when each of so many notifications was seen, by the envelope's id."""
    written: dict[str, float] = {}
    with directory() as place:
        file, output = place / "in" / "partition-0.jsonl", place / "out" / "notifications.jsonl"
        for each in (file, output):
            each.parent.mkdir()
            each.touch()
        with serving(override("run-directory", place), override("http.enabled", "false"), *overrides):
            writing = Thread(target=_write, args=(file, lines, rate, written))
            writing.start()
            seen = _seen_in_file(output, expected)
            writing.join()
    return written, seen


def _write(file: Path, lines: list[bytes], rate: float, written: dict[str, float]) -> None:
    ids = [checked(line, Origin(PARTITION, 0)).envelope_id for line in lines]
    with file.open("ab", buffering=0) as opened:
        for identity, line in steadily(list(zip(ids, lines, strict=True)), rate):
            opened.write(line)
            written[identity] = time.time()


def _seen_in_file(file: Path, count: int) -> dict[str, float]:
    """Return when each of so many notifications could first be read, by the envelope's id."""
    seen, remainder, give_up = dict[str, float](), b"", time.time() + GIVE_UP_SECONDS
    with file.open("rb", buffering=0) as opened:
        while len(seen) < count:
            time.sleep(_LOOK_EVERY_S)
            *lines, remainder = (remainder + opened.read()).split(b"\n")
            seen |= dict.fromkeys(map(_notified, lines), time.time())
            if time.time() > give_up:
                raise WrongResult(f"{len(seen)} of {count} were seen")
    return seen


def _notified(line: bytes) -> str:
    identity: str = msgspec.json.decode(line)["headers"][ENVELOPE_ID]
    return identity


def main() -> None:
    chosen = arguments(__doc__, rate=500.0, seconds=20.0)
    names = [name for name in ("bare loop", "none", *_STORAGES) if wanted(chosen, name)]
    with made(round(chosen.rate * chosen.seconds), "--window", 0, "--duplicates", 0) as workload:
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
