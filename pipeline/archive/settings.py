"""What the archiver is told."""

from collections.abc import Callable, Mapping

import msgspec

Tell = Callable[[str], None]
"""Called with a line for people."""


class ArchiveSettings(msgspec.Struct, frozen=True):
    """`location` is a path or a URL of Hadoop's; `client` are options of the Java client. A batch takes about `batch_records`
    at most. Where it goes on for ever, batches begin `every_ms` apart.
    """

    location: str
    topics: tuple[str, ...]
    client: Mapping[str, str]
    batch_records: int = 1_000_000
    every_ms: int = 60_000
