"""Writes and reads gzip files, a chunk at a time."""

import zlib
from collections.abc import Iterable
from hashlib import sha256

from notification_service.connectors.files.operations import CHUNK_BYTES, FileOperations, write_all

_GZIP = 16 + zlib.MAX_WBITS


def pack(files: FileOperations, descriptor: int, chunks: Iterable[bytes]) -> bytes:
    """Write the chunks as gzip, and return the SHA-256 of the unpacked bytes.

    Raises OSError; the file may then hold any beginning of the gzip data.
    """
    digest, packer = sha256(), zlib.compressobj(wbits=_GZIP)
    for chunk in chunks:
        digest.update(chunk)
        write_all(files, descriptor, packer.compress(chunk))
    write_all(files, descriptor, packer.flush())
    return digest.digest()


def digest_of(chunks: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of the chunks, without packing them."""
    digest = sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def find_packed_digest(files: FileOperations, descriptor: int) -> bytes | None:
    """Return the SHA-256 of the unpacked content of a file that `pack` wrote; None if the gzip file is invalid or incomplete."""
    digest, offset, unpacker = sha256(), 0, zlib.decompressobj(_GZIP)
    try:
        while chunk := files.read(descriptor, CHUNK_BYTES, offset):
            offset += len(chunk)
            while chunk:
                digest.update(unpacker.decompress(chunk, CHUNK_BYTES))
                chunk = unpacker.unconsumed_tail
        digest.update(unpacker.flush())
    except zlib.error:
        return None
    return digest.digest() if unpacker.eof and not unpacker.unused_data else None
