"""The settings of the archiver."""

from collections.abc import Callable, Mapping

import msgspec

Tell = Callable[[str], None]
"""Called with a line of progress for people."""


class ArchiveSettings(msgspec.Struct, frozen=True):
    """`location` is a path or a URL of Hadoop's; `client` holds options of the Java client.

    `facts_group` is the consumer group that counts the facts, empty without aggregation.
    A batch takes at most about `batch_records`. A continuous archiver begins a batch every `every_ms`.
    """

    location: str
    topics: tuple[str, ...]
    client: Mapping[str, str]
    batch_records: int = 1_000_000
    every_ms: int = 60_000
    facts_group: str = ""
