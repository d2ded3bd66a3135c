"""The interface of the lookups for the handlers: look-ups of one version, which never change."""

from typing import Protocol


class Tables(Protocol):
    """The tables of one release. `version` is the release's; the same version gives the same answers."""

    @property
    def version(self) -> str: ...

    def find(self, table: str, key: bytes) -> bytes | None:
        """Return the value, None if there is no such key or no such table."""
        ...
