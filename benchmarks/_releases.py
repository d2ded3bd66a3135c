"""Makes releases of lookups without Spark: the rows that a workload looks up, and very many others."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import crc32

import msgspec

from benchmarks._worker import on_files, run_through
from benchmarks._workload import ROOT, Workload
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Pointer, Shard, Table
from notification_service.lookups.publication import Publication, Row, write_shard
from notification_service.lookups.shapes import ANY, CUSTOMERS, INSTITUTIONS, REASONS, SEPARATOR, SETTINGS, key_of
from notification_service.payments.enrichment import Lookups
from notification_service.supervision.system_clock import SystemClock

SHARDS = 4
_INSTITUTIONS = 35_000
_BATCH = 100_000


class Asked:
    """Lookups that answer every key, and note the keys and answers.

    Half of the customers are known by party, the other half by account. All events have `text`, if it is given.
    """

    version = "asked"

    def __init__(self, text: str | None = None) -> None:
        self.found: dict[str, dict[bytes, bytes]] = {name: {} for name in (SETTINGS, REASONS, INSTITUTIONS, CUSTOMERS)}
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
        kind, _, rest = key.decode().partition(SEPARATOR)
        if table == SETTINGS:
            return self._settings.get(key)
        if table == REASONS:
            return [f"Reason{kind}", "What this reason means, in a sentence of its own."]
        if table == CUSTOMERS:
            return None if kind == "party" and crc32(key) % 2 else ["BANK_001", "de", "email", None, "2026-01-01"]
        if kind == "iban":
            return ["0", "8"]
        return ["A bank with a name of ordinary length", rest if kind == "bic" else "COBADEFFXXX", "DE"]


def asked_of(workload: Workload) -> dict[str, dict[bytes, bytes]]:
    """Return the keys that a worker looks up for the workload, with their values, by table."""
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        parts = on_files(workload.read(), Path(directory))
        asked = Asked()
        parts.handler._handler = parts.handler._handler.with_lookups(Lookups(asked))
        run_through(parts.cycle, workload.lines)
        parts.handler.close()
    return asked.found


def publish(
    directory: LookupsDirectory, found: dict[str, dict[bytes, bytes]], customers: int, text: str | None = None
) -> Pointer:
    """Publish a release of these rows and of so many customers that the workload never looks up."""
    said = Asked(text)
    for key in found[SETTINGS]:
        said.find(SETTINGS, key)
    tables = found | {SETTINGS: said.found[SETTINGS]}
    others = {CUSTOMERS: customers, INSTITUTIONS: _INSTITUTIONS}
    with directory.publishing():
        publication = Publication(directory, SystemClock().now(), "benchmark")
        written = {name: _write(publication.table_path(name), rows, others.get(name, 0)) for name, rows in tables.items()}
        publication.publish(written, ())
    return directory.get_current()


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
