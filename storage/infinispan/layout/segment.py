"""Segments: one per commit, with what it changed and the names of all that it builds on. Pure."""

from hashlib import sha256
from typing import NamedTuple

import msgspec

from storage.infinispan.layout.expiry import ExpiryWatermark
from storage.infinispan.layout.records import UnitRecord
from storage.infinispan.layout.value_framing import undecodable
from storage.port import Header

MOST_COMMITS = 2**32 - 1
"""Under one token. Whoever gets so far takes the partition over anew, with another token."""


class CommitVersion(NamedTuple):
    """What a partition's counter holds: under which token how many commits were made. Token 0: it was never opened."""

    token: int
    commit: int

    def packed(self) -> int:
        return self.token << 32 | self.commit


def version_of(counter: int) -> CommitVersion:
    return CommitVersion(counter >> 32, counter & MOST_COMMITS)


def token_of(text: str) -> int:
    """A random text as a token: 31 bits, never 0."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % (2**31 - 1) + 1


def token_text(token: int) -> str:
    """As headers have it."""
    return f"{token:08x}"


def version_of_header(header: Header) -> CommitVersion:
    return CommitVersion(int(header.token, 16), header.commit)


class WindowRow(msgspec.Struct, frozen=True, array_like=True):
    """A segment with changes that are not in pages yet: its name, its parts, and how many of its changes are."""

    name: str
    parts: int
    compacted: int


class IndexBlockRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    parts: int


class SegmentManifest(msgspec.Struct, frozen=True, array_like=True):
    """What a segment builds on, beside itself.

    The pages are those from `tail` up to `head`; the writer of a page is the token of the last of `origins` that begins at it
    or before. `garbage` names what nobody needs any more and may not have been deleted yet. `watermark` says which idle units are
    forgotten; None where an older version wrote it, which counted on the wall clock.
    """

    window: tuple[WindowRow, ...] = ()
    blocks: tuple[IndexBlockRow, ...] = ()
    origins: tuple[tuple[int, int], ...] = ()
    tail: int = 0
    head: int = 0
    garbage: tuple[str, ...] = ()
    watermark: ExpiryWatermark | None = None


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A commit. `pending` is all that is to leave, `pins` the pages in which units lie that `changes` go on from."""

    header: Header
    attempt: str | None = None
    manifest: SegmentManifest = SegmentManifest()
    pending: tuple[tuple[int, bytes], ...] = ()
    pins: tuple[int, ...] = ()
    changes: tuple[UnitRecord, ...] = ()

    @property
    def version(self) -> CommitVersion:
        return version_of_header(self.header)


encode_segment = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Segment).decode


def decode_segment(name: str, payload: bytes) -> Segment:
    """Raises StorageRefused if it is none."""
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise undecodable(name, error) from error
