"""The writer of a shard: keys and values, in the order of the keys, in one LMDB file."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import lmdb

from notification_service.lookups.manifest import Shard

_LARGEST_BYTES = 1 << 40
"""An upper bound for the file. It reserves only address space; the file grows with its content."""

Row = tuple[bytes, bytes]


def write_shard(file: Path, batches: Iterable[Sequence[Row]]) -> Shard:
    """Write a shard, and return its entry for the manifest. The file is then on disk. An existing file is replaced.

    Keys must ascend by their bytes over all batches, without repetitions, and have 1 to 511 bytes. A batch is one transaction.

    Raises:
        ValueError: The keys violate these rules.
    """
    file.unlink(missing_ok=True)
    rows = 0
    with lmdb.open(str(file), subdir=False, lock=False, map_size=_LARGEST_BYTES, meminit=False) as environment:
        for batch in batches:
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                try:
                    consumed, _ = cursor.putmulti(batch, overwrite=False, append=True)
                except lmdb.Error as error:
                    raise ValueError(f"{file}: keys must ascend and have 1 to 511 bytes: {error}") from error
            if consumed != len(batch):
                raise ValueError(f"{file}: keys must ascend, and none may come twice")
            rows += len(batch)
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Shard(file.name, rows, os.fstat(stream.fileno()).st_size, digest)
