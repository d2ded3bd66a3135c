"""Segments: one per commit, with its changes and the names of all values that it builds on. Pure."""

from hashlib import sha256
from typing import NamedTuple

import msgspec

from resequencer.storage_port import Header
from storage.infinispan.layout.expiry import ExpiryWatermark
from storage.infinispan.layout.records import UnitRecord
from storage.infinispan.layout.value_framing import USUAL_FORMAT, WITH_ORDERS, WITH_SOURCE_STATE, undecodable

MOST_COMMITS = 2**32 - 1
"""The most commits under one token. After that, the worker takes the partition over again, with another token."""


class CommitVersion(NamedTuple):
    """The value of a partition's counter: a token and the number of commits under it. Token 0: it was never opened."""

    token: int
    commit: int

    def packed(self) -> int:
        return self.token << 32 | self.commit


def version_of(counter: int) -> CommitVersion:
    return CommitVersion(counter >> 32, counter & MOST_COMMITS)


def token_of(text: str) -> int:
    """Return a random text as a token: 31 bits, never 0."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % (2**31 - 1) + 1


def token_text(token: int) -> str:
    """Return the text of a token in headers and names."""
    return f"{token:08x}"


def version_of_header(header: Header) -> CommitVersion:
    return CommitVersion(int(header.token, 16), header.commit)


class WindowRow(msgspec.Struct, frozen=True, array_like=True):
    """A segment with changes that are not in pages yet: its name, its number of parts, and how many changes are in pages."""

    name: str
    parts: int
    compacted: int


class IndexBlockRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    parts: int


class SegmentManifest(msgspec.Struct, frozen=True, array_like=True):
    """The values on which a segment builds.

    The pages are those from `tail` up to `head`. A page's writer is the token of the last of `origins` that begins at the page or
    before. `garbage` has the names of unused values that may not be deleted yet. `watermark` determines the expired units.
    """

    window: tuple[WindowRow, ...] = ()
    blocks: tuple[IndexBlockRow, ...] = ()
    origins: tuple[tuple[int, int], ...] = ()
    tail: int = 0
    head: int = 0
    garbage: tuple[str, ...] = ()
    watermark: ExpiryWatermark = ExpiryWatermark()


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A commit. `pending` is the whole unpublished output. `pins` are the pages on whose units `changes` build."""

    header: Header
    attempt: str | None = None
    manifest: SegmentManifest = SegmentManifest()
    pending: tuple[tuple[int, bytes], ...] = ()
    pins: tuple[int, ...] = ()
    changes: tuple[UnitRecord, ...] = ()

    @property
    def version(self) -> CommitVersion:
        return version_of_header(self.header)

    @property
    def format(self) -> int:
        """The format that a reader of this segment must know."""
        if self.header.source_state:
            return WITH_SOURCE_STATE
        return WITH_ORDERS if self.header.orders else USUAL_FORMAT


encode_segment = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Segment).decode


def decode_segment(name: str, payload: bytes) -> Segment:
    """Decode a segment. Raises StorageRefused if the payload is not one."""
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise undecodable(name, error) from error
