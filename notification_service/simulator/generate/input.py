"""The port through which simulated lines are written: to the files or the topic that the service reads."""

from contextlib import AbstractContextManager
from typing import Protocol, Self


class Input(AbstractContextManager["Input"], Protocol):
    """Takes whole lines as `encode_line` makes them. Appended lines are readable after the next `flush` at the latest.

    Raises:
        TransportRefused: The input cannot be written.
        TransportUnavailable: The input does not answer.
    """

    def __enter__(self) -> Self: ...

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key's records."""
        ...

    def append(self, partition: int, line: bytes) -> None: ...

    def append_and_tell(self, partition: int, line: bytes) -> int:
        """Append a line and return its offset. May take longer than `append`."""
        ...

    def flush(self) -> None: ...
