"""What lookups cost a worker, and what a change of them costs it under load: `python -m benchmarks.lookups`.

The same envelopes as in `throughput` go through the whole worker:

    settings file   with the settings file alone
    lookups         with a release: settings, reasons, institutions, and customers, of which `--customers` are never looked up.
                    Every payment finds its customer by party or by account, and every agent its name; the resulting headers
                    and names are written too. The goal is for the ratio.
    switching       with a release, while another process makes one or the other of two releases current, every `--every-ms`. Each
                    switch checks the release's checksums, beside the cycles. The releases differ in the text of every event, and
                    each notification is compared with the version that its header names.

Cycles are shown in milliseconds, with the check for new lookups; `take-up` is how much of it taking up a release took at most.
The goal for switching: the longest cycle is at most 50 ms longer than without. Each measurement has a process of its own.
"""

import csv
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec

from benchmarks._runner import ROOT, Case, Figures, Stopwatch, WrongResult, apart, arguments, at_quantiles, directory, measure
from benchmarks._worker import on_files, run_through
from benchmarks._workload import Workload, made, override
from guardian.headers import LOOKUPS_VERSION
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Pointer, Shard, Table
from notification_service.lookups.publication import Publication, Row, write_shard
from notification_service.lookups.shapes import ANY, CUSTOMERS, INSTITUTIONS, REASONS, SEPARATOR, SETTINGS, key_of
from notification_service.payments.enrichment import Lookups
from notification_service.supervision.system_clock import SystemClock
from resequencer.gc_tuning import calm_collector

SHARDS = 4
TEXTS = ("the first release", "the second release")
_INSTITUTIONS = 35_000
_BATCH = 100_000

Found = dict[str, dict[bytes, bytes]]
"""Keys and their values, by table."""


class Answers:
    """Lookups that answer every key, and note the keys and answers.

    Half of the customers are known by party, the other half by account. All events have `text`, if it is given.
    """

    version = "answers"

    def __init__(self, text: str | None = None) -> None:
        self.found: Found = {name: {} for name in (SETTINGS, REASONS, INSTITUTIONS, CUSTOMERS)}
        with (ROOT / "conf" / "notification-settings.csv").open(newline="") as file:
            self._settings = {
                key_of(ANY, row["process_flow_name"], row["event_name"]): [
                    row["transaction_status"],
                    row["reason_code"] or None,
                    text or row["additional_information"] or None,
                    None,
                ]
                for row in csv.DictReader(file)
            }

    def find(self, table: str, key: bytes) -> bytes | None:
        value = self._answer(table, key)
        if value is None:
            return None
        encoded = msgspec.json.encode(value)
        self.found[table][key] = encoded
        return encoded

    def _answer(self, table: str, key: bytes) -> Sequence[str | None] | None:
        kind, _, name = key.decode().partition(SEPARATOR)
        if table == SETTINGS:
            return self._settings.get(key)
        if table == REASONS:
            return [f"Reason{kind}", "What this reason means, in a sentence of its own."]
        if table == CUSTOMERS:
            return None if kind == "party" and crc32(key) % 2 else ["BANK_001", "de", "email", None, "2026-01-01"]
        if kind == "iban":
            return ["0", "8"]
        return ["A bank with a name of ordinary length", name if kind == "bic" else "COBADEFFXXX", "DE"]


def looked_up(workload: Workload) -> Found:
    """Return the keys that a worker looks up for the workload, with their values."""
    with directory() as place:
        parts = on_files(workload.read(), place)
        answers = Answers()
        parts.handler._handler = parts.handler._handler.with_lookups(Lookups(answers))
        run_through(parts.cycle, workload.lines)
        parts.handler.close()
    return answers.found


def publish(releases: LookupsDirectory, found: Found, customers: int, text: str) -> Pointer:
    """Publish a release of these rows and of so many customers that the workload never looks up."""
    answers = Answers(text)
    for key in found[SETTINGS]:
        answers.find(SETTINGS, key)
    tables = found | {SETTINGS: answers.found[SETTINGS]}
    others = {CUSTOMERS: customers, INSTITUTIONS: _INSTITUTIONS}
    with releases.publishing():
        publication = Publication(releases, SystemClock().now(), "benchmark")
        written = {name: _write(publication.table_path(name), rows, others.get(name, 0)) for name, rows in tables.items()}
        publication.publish(written, ())
    return releases.get_current()


def _write(path: Path, rows: dict[bytes, bytes], others: int) -> Table:
    value = b'["BANK_001","de","email","ACSC RJCT","2026-01-01"]'
    keys = sorted([*rows, *(b"account\x1fother-%012d" % number for number in range(others))])
    parts: list[list[bytes]] = [[] for _ in range(SHARDS if others else 1)]
    for key in keys:
        parts[crc32(key) % len(parts)].append(key)
    shards: list[Shard] = []
    for number, part in enumerate(parts):
        shards.append(write_shard(path / f"{number}.mdb", _batches(part, rows, value)))
    return Table(tuple(shards))


def _batches(keys: Sequence[bytes], rows: dict[bytes, bytes], value: bytes) -> Iterator[list[Row]]:
    for begin in range(0, len(keys), _BATCH):
        yield [(key, rows.get(key, value)) for key in keys[begin : begin + _BATCH]]


def worker(workload: Workload, lookups: Path | None, texts: dict[str, str]) -> Figures:
    """Run the worker as the service does; `texts` are those of the releases, by version."""
    chosen = () if lookups is None else (override("lookups.directory", lookups), override("lookups.check-every", "100ms"))
    with directory() as place:
        parts = on_files(workload.read(), place, *chosen)
        assert (parts.handler.version is None) == (lookups is None)
        calm_collector()
        if lookups is not None:
            parts.handler.follow()
        cycles, taken, counts, watch = list[float](), list[float](), parts.cycle.metrics.counts, Stopwatch()
        while counts["records"] < workload.lines:
            before, version, began = counts["records"], parts.handler.version, time.perf_counter()
            parts.cycle.run_once()
            ended = time.perf_counter()
            parts.handler.take_up()
            looked = time.perf_counter()
            if counts["records"] > before:
                cycles.append((looked - began) * 1_000)
            if parts.handler.version != version:
                taken.append((looked - ended) * 1_000)
        parts.cycle.close()
        figures = watch.spent().of_each(workload.lines)
        parts.handler.close()
        if lookups is not None:
            _check(place / "out" / "notifications.jsonl", texts)
    return {**figures, "cycles": len(cycles), **at_quantiles(cycles), "switches": len(taken), "take-up": max(taken, default=0)}


def _check(file: Path, texts: dict[str, str]) -> None:
    """Check that the text of each notification is that of its version."""
    with file.open("rb") as lines:
        for line in lines:
            notification = msgspec.json.decode(line)
            status = notification["value"]["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]
            if texts[notification["headers"][LOOKUPS_VERSION]] not in status["StsRsnInf"][0]["AddtlInf"]:
                raise WrongResult(f"a notification contradicts its version: {line[:200]!r}")


def switching(workload: Workload, lookups: Path, pointers: dict[str, Pointer], every_ms: int) -> Figures:
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_switch, args=(lookups, list(pointers.values()), every_ms), daemon=True)
    process.start()
    try:
        return apart(worker, workload, lookups, _texts(pointers))
    finally:
        process.kill()
        process.join()


def _switch(lookups: Path, pointers: Sequence[Pointer], every_ms: int) -> None:
    """Switch releases until killed."""
    releases = LookupsDirectory(lookups)
    while True:
        for pointer in pointers:
            time.sleep(every_ms / 1_000)
            releases.switch(pointer)


def _texts(pointers: dict[str, Pointer]) -> dict[str, str]:
    return {pointer.version: text for text, pointer in pointers.items()}


def main() -> None:
    large = {"envelopes": 200_000}
    chosen = arguments(__doc__, large=large, envelopes=60_000, customers=1_000_000, every_ms=200, rounds=3)
    with made(chosen.envelopes) as workload, directory() as place:
        releases, found = LookupsDirectory(place), looked_up(workload)
        pointers = {text: publish(releases, found, chosen.customers, text) for text in TEXTS}
        print(
            f"{workload.lines} envelopes ask for " + ", ".join(f"{len(rows)} {name}" for name, rows in found.items()), flush=True
        )
        cases = [
            Case("settings file", partial(apart, worker, workload, None, {})),
            Case("lookups", partial(apart, worker, workload, releases.path, _texts(pointers)), "settings file", 0.9),
            Case("switching", partial(switching, workload, releases.path, pointers, chosen.every_ms), "lookups", "50 ms"),
        ]
        measure(chosen, cases)


if __name__ == "__main__":
    main()
