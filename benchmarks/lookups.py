"""What lookups cost a worker, and what a change of them costs it under load: `python -m benchmarks.lookups`.

The same envelopes as in `throughput` go through the whole worker:

    settings file   with the settings file alone
    lookups         with a release: settings, reasons, institutions, and customers, of which `--customers` are never looked up.
                    Every payment finds its customer by party or by account, and every agent its name; the resulting headers
                    and names are written too. The goal is for the ratio.
    switching       with a release, while another process makes one or the other of two releases current, five times a second.
                    Each switch checks the release's checksums, beside the cycles. The releases differ in the text of every event,
                    and each notification is compared with the version that its header names.

Cycles are shown in milliseconds, with the check for new lookups; `take-up` is how much of it taking up a release took at most.
The goal for switching: the longest cycle is at most 50 ms longer than without. Each measurement has a process of its own.
"""

import csv
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from zlib import crc32

import msgspec

from benchmarks._runner import ROOT, Case, Figures, Stopwatch, WrongResult, apart, arguments, at_quantiles, directory, measure
from benchmarks._worker import Workload, made, on_files, override, run_through
from guardian.headers import LOOKUPS_VERSION
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Pointer, Table
from notification_service.lookups.publication import Publication, write_shard
from notification_service.lookups.shapes import ANY, CUSTOMERS, INSTITUTIONS, REASONS, SEPARATOR, SETTINGS, key_of
from notification_service.payments.enrichment import Lookups
from notification_service.supervision.system_clock import SystemClock
from resequencer.gc_tuning import calm_collector

TEXTS = ("the first release", "the second release")
_INSTITUTIONS = 35_000
_BATCH = 100_000
_SWITCHES_EVERY_S = 0.2
_OTHER = b'["BANK_001","de","email","ACSC RJCT","2026-01-01"]'

Found = dict[str, dict[bytes, bytes]]
"""Keys and their values, by table."""


class Answers:
    """Lookups that answer every key, and note it with the answer. Half of the customers are known by party, half by account."""

    version = "answers"

    def __init__(self) -> None:
        self.found: Found = {name: {} for name in (SETTINGS, REASONS, INSTITUTIONS, CUSTOMERS)}
        with (ROOT / "conf" / "notification-settings.csv").open(newline="") as file:
            rows = [(key_of(ANY, row["process_flow_name"], row["event_name"]), row) for row in csv.DictReader(file)]
        self._settings = {key: [row["transaction_status"], row["reason_code"] or None, None, None] for key, row in rows}

    def find(self, table: str, key: bytes) -> bytes | None:
        value = self._answer(table, key)
        if value is None:
            return None
        return self.found[table].setdefault(key, msgspec.json.encode(value))

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
    """Publish a release of these rows, of this text for each event, and of so many customers that are never looked up."""
    settings = {key: msgspec.json.encode([*msgspec.json.decode(row)[:2], text, None]) for key, row in found[SETTINGS].items()}
    others = {CUSTOMERS: customers, INSTITUTIONS: _INSTITUTIONS}
    with releases.publishing():
        publication, written = Publication(releases, SystemClock().now(), "benchmark"), {}
        for name, rows in (found | {SETTINGS: settings}).items():
            more = ((b"account\x1fother-%012d" % number, _OTHER) for number in range(others.get(name, 0)))
            ordered = sorted([*rows.items(), *more])
            batches = (ordered[begin : begin + _BATCH] for begin in range(0, len(ordered), _BATCH))
            written[name] = Table((write_shard(publication.table_path(name) / "0.mdb", batches),))
        publication.publish(written, ())
    return releases.get_current()


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


def switching(workload: Workload, lookups: Path, texts: dict[str, str], pointers: Sequence[Pointer]) -> Figures:
    process = get_context("spawn").Process(target=_switch, args=(lookups, pointers), daemon=True)
    process.start()
    try:
        return apart(worker, workload, lookups, texts)
    finally:
        process.kill()
        process.join()


def _switch(lookups: Path, pointers: Sequence[Pointer]) -> None:
    """Switch releases until killed."""
    for pointer in cycle(pointers):
        time.sleep(_SWITCHES_EVERY_S)
        LookupsDirectory(lookups).switch(pointer)


def main() -> None:
    large = {"envelopes": 200_000}
    chosen = arguments(__doc__, large=large, envelopes=60_000, customers=1_000_000, rounds=3)
    with made(chosen.envelopes) as workload, directory() as place:
        releases, found = LookupsDirectory(place), looked_up(workload)
        pointers = [publish(releases, found, chosen.customers, text) for text in TEXTS]
        given = (workload, releases.path, {pointer.version: text for pointer, text in zip(pointers, TEXTS, strict=True)})
        asked = ", ".join(f"{len(rows)} {name}" for name, rows in found.items())
        print(f"{workload.lines} envelopes ask for {asked}", flush=True)
        cases = [
            Case("settings file", partial(apart, worker, workload, None, {})),
            Case("lookups", partial(apart, worker, *given), "settings file", 0.9),
            Case("switching", partial(switching, *given, pointers), "lookups", "50 ms"),
        ]
        measure(chosen, cases)


if __name__ == "__main__":
    main()
