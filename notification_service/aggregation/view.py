"""Reads the values of a store from outside of its workers."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile
from resequencer.clock import Instant

_AT_ONCE = 1_000


class ValueChange(NamedTuple):
    """What a head, or with `member` the value of a member, was changed to, and when that was written. None: it was deleted."""

    at: Instant
    member: str
    body: bytes | None


class StoreView(Protocol):
    """Values as they were at the last `refresh`. Any call may raise the errors of a transport (guardian/ports.py)."""

    def refresh(self, key: str | None = None) -> None:
        """Look at what there is now; with `key` it is enough to know the values of that key."""
        ...

    def take_changed(self) -> Collection[str] | None:
        """Return the keys of which `refresh` has read something since the last call; None: any may have changed."""
        ...

    def find(self, key: str) -> Stored | None:
        """Return the head of a key."""
        ...

    def heads(self) -> Iterator[tuple[str, bytes]]:
        """Yield all keys with their heads, in the order of the keys."""
        ...

    def keys(self, after: str) -> Iterator[str]:
        """Yield the keys behind `after`, in order."""
        ...

    def members(self, key: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """Return members of a key behind `after` with their values, in the order of their names."""
        ...

    def close(self) -> None: ...


class FileView:
    """The view of a store in files, and of one on topics whose values were read into a file. Another process may write it."""

    def __init__(self, file: ValuesFile) -> None:
        self._path = file.path
        self._file = file

    def refresh(self, key: str | None = None) -> None:
        """Do nothing: the file is always read as it is."""

    def take_changed(self) -> None:
        """Return None: another process writes the file."""

    def find(self, key: str) -> Stored | None:
        return self._file.find(Slot(key)) if self._path.exists() else None

    def heads(self) -> Iterator[tuple[str, bytes]]:
        after = ""
        while self._path.exists() and (found := self._file.heads(after, _AT_ONCE)):
            yield from found
            after = found[-1][0]

    def keys(self, after: str) -> Iterator[str]:
        while self._path.exists() and (found := self._file.keys(after, _AT_ONCE)):
            yield from found
            after = found[-1]

    def members(self, key: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        return self._file.member_values(key, after, limit) if self._path.exists() else ()

    def close(self) -> None:
        self._file.close()
