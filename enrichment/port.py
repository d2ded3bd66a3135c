"""What the handlers ask: look-ups of one version, which never change."""

from typing import Protocol


class Tables(Protocol):
    """`version` names the release; the same version gives the same answers."""

    @property
    def version(self) -> str: ...

    def find(self, table: str, key: bytes) -> bytes | None:
        """The value, None where the table has no such key or where there is no such table."""
        ...
