"""The treatment of missing values that a segment refers to: the cache has lost them, or a newer owner has deleted them."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec.structs import replace

from resequencer.errors import OwnershipLost
from resequencer.storage_port import StorageUnavailable
from storage.infinispan.keys import PartitionKeys, page_name, segment_name
from storage.infinispan.layout.segment import CommitVersion, Segment, SegmentManifest, encode_segment, token_of, token_text
from storage.infinispan.layout.value_framing import Kind, Missing, Value, part_names

_log = logging.getLogger("resequencer.storage")

_LOOKS = 6
"""How often a value is searched in a cache that may show it late. The caller's pause between tries grows each time."""


class DataLoss:
    """Counts how often each value was missing."""

    def __init__(self, random_token: Callable[[], str]) -> None:
        self._random_token = random_token
        self._missed: Counter[str] = Counter()

    def see_that_it_is_one(self, link: PartitionKeys, version: CommitVersion, missing: Missing) -> None:
        """Return if the value is lost: the partition has not moved, and the value does not appear.

        Raises:
            OwnershipLost: The partition has moved: the value was not needed any more.
            StorageUnavailable: The value may still appear.
        """
        if (now := link.find_version()) != version:
            raise OwnershipLost(f"this worker is at {version}, the counter of {link.name} at {now}") from missing
        name = str(missing)
        self._missed[name] += 1
        if link.may_lag and self._missed[name] <= _LOOKS:
            raise StorageUnavailable(f"{name} is not there yet, or lost: the cache is asynchronous") from missing
        del self._missed[name]
        _log.error("the cache has lost %s: the partition's state is discarded and healed by reading its records again", name)

    def forget(self, link: PartitionKeys, root: Segment) -> None:
        """Give the partition an empty header that keeps only the numbering and the caught-up clock.

        The header has no history, so it knows no position, and the takeover heals. All known values become garbage.
        """
        token = token_text(token_of(self._random_token()))
        header = replace(root.header, token=token, commit=0, next_offset=None, history=())
        segment = Segment(header, manifest=SegmentManifest(garbage=tuple(everything(root))))
        link.write(Value(Kind.SEGMENT, segment_name(segment.version), encode_segment(segment), segment.format))
        link.move(root.version, segment.version)


def everything(root: Segment) -> Iterator[str]:
    """Yield the names of all values that a segment builds on, and its own. Of a page in parts, only the first part's name."""
    manifest = root.manifest
    yield from manifest.garbage
    yield segment_name(root.version)
    for segment in manifest.window:
        yield from part_names(segment.name, segment.parts)
    for block in manifest.blocks:
        yield from part_names(block.name, block.parts)
    for (first, token), (end, _) in pairwise((*manifest.origins, (manifest.head, 0))):
        for page in range(max(first, manifest.tail), end):
            yield page_name(token, page)
