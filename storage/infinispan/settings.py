"""The settings of the Infinispan storage. Imports no client, because that takes a fifth of a second."""

from pathlib import Path
from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key
from resequencer.keys.value_types import Duration, FilePath, SecretText, Text, Url

_CACHE = Text(r"[A-Za-z0-9._-]{1,100}", "1 to 100 letters, digits, dots, underscores and hyphens")


class ServerSettings(msgspec.Struct, frozen=True):
    """`url` is the server's, without /rest/v2. Without a `username` there is no login. Without a `ca_file` the system's
    authorities are trusted. `timeout_ms` bounds each step of a request: the connection, each part sent, each part received.
    """

    url: Annotated[str, Key(Url(("http", "https")))]
    cache: Annotated[str, Key(_CACHE)]
    username: Annotated[str, Key(Text(r"[^\x00-\x1f:]{0,256}", "a text without a colon"))] = ""
    password: Annotated[str, Key(SecretText())] = ""
    timeout_ms: Annotated[int, Key(Duration("100ms", "10s"))] = 5_000
    ca_file: Annotated[Path | None, Key(FilePath("those that the system trusts"), "tls.ca-file")] = None

    def __post_init__(self) -> None:
        assert self.timeout_ms > 0


class LayoutSettings(msgspec.Struct, frozen=True):
    """The sizes of the layout's parts; see `CompactionLimits`.

    The partitions of a worker share `window_bytes`; each may have `least_window_bytes`. The window is in memory, and a new owner
    reads it. A commit of n bytes moves up to `least_compaction_bytes` + 2 n into pages.
    """

    namespace: str
    window_bytes: int = 32 * 2**20
    least_window_bytes: int = 2 * 2**20
    window_segments: int = 128
    least_compaction_bytes: int = 2**17
    page_memory_bytes: int = 32 * 2**20
    page_bytes: int = 128 * 2**10
    index_block_bytes: int = 256 * 2**10
    few_units: int = 10_000
