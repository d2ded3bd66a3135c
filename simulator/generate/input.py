"""Where simulated lines go: the files or the topic that the service reads."""

from contextlib import AbstractContextManager
from typing import Protocol, Self


class Input(AbstractContextManager["Input"], Protocol):
    """Takes lines as `encode_line` makes them, each whole. What was appended can be read after the next `flush` at the latest.

    Raises:
        TransportRefused: It cannot be written to.
        TransportUnavailable: It does not answer.
    """

    def __enter__(self) -> Self: ...

    def partition_of(self, key: bytes) -> int:
        """Where the records of a key go."""
        ...

    def append(self, partition: int, line: bytes) -> None: ...

    def append_and_tell(self, partition: int, line: bytes) -> int:
        """Its offset. May take longer than `append`."""
        ...

    def flush(self) -> None: ...
