"""What a file format for lookups costs: `python -m benchmarks.lookup_formats [--help]`.

The same rows are stored in LMDB, in SQLite (a table without row ids, memory-mapped) and, with the extra `pipeline`, in an Arrow
file with binary search. Measured are the bytes per row beyond key and value, the time to open the file, look-ups of random keys
per second, of which `--missing` percent do not exist, and the same with each value decoded.
"""

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import lmdb
import msgspec

try:
    import pyarrow as pa
    from pyarrow import ipc
except ImportError:  # Missing without the extra `pipeline`.
    pa = None

Find = Callable[[bytes], bytes | None]
Row = tuple[bytes, bytes]
_decode = msgspec.json.Decoder(list[str | None]).decode


class Form(NamedTuple):
    """A file format. `write` makes the file from rows sorted by key; `open` returns a function that finds a value."""

    write: Callable[[Path, Sequence[Row]], None]
    open: Callable[[Path], Find]


def rows(count: int) -> Iterator[Row]:
    """Return rows like those of customers: an account, and entity, language, channel, statuses."""
    for number in range(count):
        value = ["BANK_001", "de", "email" if number % 3 else "push", "ACSC RJCT" if number % 5 else None]
        yield key(number), msgspec.json.encode(value)


def key(number: int) -> bytes:
    return b"DE%020d" % (number * 104_729)


def write_lmdb(file: Path, table: Sequence[Row]) -> None:
    with lmdb.open(str(file), subdir=False, lock=False, map_size=1 << 40, meminit=False) as environment:
        for first in range(0, len(table), 100_000):
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(table[first : first + 100_000], append=True)


def open_lmdb(file: Path) -> Find:
    environment = lmdb.open(str(file), subdir=False, lock=False, readonly=True, readahead=False)
    found: Find = environment.begin().get
    return found


def write_sqlite(file: Path, table: Sequence[Row]) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE lookup (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
    connection.executemany("INSERT INTO lookup VALUES (?, ?)", table)
    connection.commit()
    connection.close()


def open_sqlite(file: Path) -> Find:
    connection = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
    connection.execute(f"PRAGMA mmap_size = {1 << 40}")

    def find(wanted: bytes) -> bytes | None:
        found = connection.execute("SELECT value FROM lookup WHERE key = ?", (wanted,)).fetchone()
        return None if found is None else found[0]

    return find


def write_arrow(file: Path, table: Sequence[Row]) -> None:
    arrays = [pa.array(column, pa.large_binary()) for column in zip(*table, strict=True)]
    batch = pa.record_batch(arrays, names=["key", "value"])
    with pa.OSFile(str(file), "wb") as sink, ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def open_arrow(file: Path) -> Find:
    batch = ipc.open_file(pa.memory_map(str(file))).get_batch(0)
    offsets, data = batch.column(0).buffers()[1:]
    bounds, content = memoryview(offsets).cast("b").cast("q"), memoryview(data)
    values, count = batch.column(1), batch.num_rows

    def find(wanted: bytes) -> bytes | None:
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if bytes(content[bounds[middle] : bounds[middle + 1]]) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < count and content[bounds[low] : bounds[low + 1]] == wanted:
            return values[low].as_py()
        return None

    return find


FORMS = {
    "lmdb": Form(write_lmdb, open_lmdb),
    "sqlite": Form(write_sqlite, open_sqlite),
    **({"arrow": Form(write_arrow, open_arrow)} if pa is not None else {}),
}


def measure(name: str, file: Path, count: int, lookups: int, missing: int) -> None:
    """Measure in a process of its own, so that its memory is its own too."""
    began = time.perf_counter()
    find = FORMS[name].open(file)
    find(key(0))
    opened_ms = (time.perf_counter() - began) * 1_000
    chance = random.Random(1)
    wanted = [key(chance.randrange(count)) if chance.randrange(100) >= missing else b"DE-none" for _ in range(lookups)]
    plain = _rate(find, wanted)

    def decoded(each: bytes) -> object:
        value = find(each)
        return None if value is None else _decode(value)

    print(f"{opened_ms:9.2f} {plain:12,.0f} {_rate(decoded, wanted):12,.0f}", flush=True)


def _rate(find: Callable[[bytes], object], wanted: Sequence[bytes]) -> float:
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        for each in wanted:
            find(each)
        best = max(best, len(wanted) / (time.perf_counter() - began))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--lookups", type=int, default=300_000)
    parser.add_argument("--missing", type=int, default=10, help="percent of the keys")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, file, count = arguments.measure
        measure(name, Path(file), int(count), arguments.lookups, arguments.missing)
        return
    print(f"{'form':8}{'rows':>12}{'overhead/row':>14}  {'open ms':>9} {'look-ups/s':>12} {'decoded/s':>12}", flush=True)
    for count in arguments.rows:
        table = list(rows(count))
        size = sum(len(each) for row in table for each in row)
        for name, form in FORMS.items():
            with TemporaryDirectory() as directory:
                file = Path(directory, name)
                form.write(file, table)
                print(f"{name:8}{count:12,}{(os.path.getsize(file) - size) / count:14.1f}", end="  ", flush=True)
                again = ["--measure", name, str(file), str(count), "--missing", str(arguments.missing)]
                lookups = ["--lookups", str(arguments.lookups)]
                subprocess.run([sys.executable, "-m", "benchmarks.lookup_formats", *again, *lookups], check=True)


if __name__ == "__main__":
    main()
