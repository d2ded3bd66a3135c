"""What is done where something is missing that a segment names: the cache has forgotten, or a newer owner cleared it away."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec.structs import replace

from domain.errors import OwnershipLost
from storage.infinispan.layout.expiry import ExpiryWatermark
from storage.infinispan.layout.segment import CommitVersion, Segment, SegmentManifest, encode_segment, token_of, token_text
from storage.infinispan.layout.value_framing import Kind, Missing, Value, part_names
from storage.infinispan.partition_keys import PartitionKeys, page_name, segment_name
from storage.port import StorageUnavailable

_log = logging.getLogger("resequencer.storage")

_LOOKS = 6
"""How often something is looked for in a cache that may show it late; who is told to try again waits longer each time."""


class DataLoss:
    """Knows what was missed how often."""

    def __init__(self, random_token: Callable[[], str]) -> None:
        self._random_token = random_token
        self._missed: Counter[str] = Counter()

    def see_that_it_is_one(self, link: PartitionKeys, version: CommitVersion, missing: Missing) -> None:
        """Returns if the partition still stands where it stood, so that what is missing is lost.

        Raises:
            OwnershipLost: It has moved: what is missing was not needed any more.
            StorageUnavailable: It may still appear.
        """
        if (now := link.find_version()) != version:
            raise OwnershipLost(f"we are at {version}, the counter of {link.name} is at {now}") from missing
        name = str(missing)
        self._missed[name] += 1
        if link.may_lag and self._missed[name] <= _LOOKS:
            raise StorageUnavailable(f"{name} is not there yet, or lost: the cache is asynchronous") from missing
        del self._missed[name]
        _log.error("the cache has lost %s: its partition is forgotten as a whole, and healed by reading its records again", name)

    def forget(self, link: PartitionKeys, root: Segment) -> None:
        """Make the partition stand on nothing: an empty header that keeps what numbering and clock must go on from.

        Without a history no position is known to it. All that can still be named becomes garbage.
        """
        token = token_text(token_of(self._random_token()))
        header = replace(root.header, token=token, commit=0, next_offset=None, history=())
        segment = Segment(header, manifest=SegmentManifest(garbage=tuple(everything(root)), watermark=ExpiryWatermark()))
        link.write(Value(Kind.SEGMENT, segment_name(segment.version), encode_segment(segment)))
        link.move(root.version, segment.version)


def everything(root: Segment) -> Iterator[str]:
    """The names of all that a segment builds on, and its own. Of a page that was written in parts, only the first."""
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
