"""The keys of a schedule, in order: those that are named, or those of a lookup's release."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from notification_service.delivery.schedules.settings import KeysSettings
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import Release, open_release, pointer_of
from notification_service.lookups.shapes import SEPARATOR, ReleaseRefused, shown_value


class FoundKey(NamedTuple):
    """A key that was looked at. `text` is the key of its request as bytes, with its parts; None: it is not wanted."""

    key: bytes
    text: bytes | None


class Keys(Protocol):
    """Keys in the order of their bytes, so that each is passed once, whatever process continues."""

    def open(self, release: str | None) -> str | None:
        """Get ready, with this version of the lookups if it is still there, and return the version in use; None: no lookups.

        Raises:
            NoRelease, ReleaseRefused: No release can be used.
        """
        ...

    def after(self, key: bytes) -> Iterator[FoundKey]:
        """Return the keys behind this one."""
        ...

    def close(self) -> None: ...


class NamedKeys:
    """The keys that the configuration names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._keys = sorted(name.encode() for name in names)

    def open(self, release: str | None) -> None:
        del release  # They are of none.

    def after(self, key: bytes) -> Iterator[FoundKey]:
        return (FoundKey(each, each) for each in self._keys if each > key)

    def close(self) -> None:
        """Nothing is kept open."""


class LookupKeys:
    """The keys of a lookup. A release stays open until another one is asked for: opening reads all of its files."""

    def __init__(self, directory: LookupsDirectory, settings: KeysSettings) -> None:
        self._directory, self._table = directory, settings.lookup
        self._prefix = f"{settings.kind}{SEPARATOR}".encode() if settings.kind else b""
        self._where: Mapping[str, str] = msgspec.json.decode(settings.where, type=dict[str, str])
        self._release: Release | None = None

    def open(self, release: str | None) -> str:
        wanted = self._directory.get_current().version if release is None else release
        if self._release is None or self._release.version != wanted:
            self.close()
            self._release = self._opened(wanted, is_chosen=release is not None)
        if not self._release.has(self._table):
            place = self._directory.release(self._release.version)
            raise ReleaseRefused(place, f"has no lookup {self._table}, whose keys a schedule needs; build the lookups with it")
        return self._release.version

    def after(self, key: bytes) -> Iterator[FoundKey]:
        assert self._release is not None, "it was opened"
        for found, value in self._release.rows(self._table, max(key, self._prefix)):
            if not found.startswith(self._prefix):
                return
            is_wanted = not self._where or self._meets(found, value)
            yield FoundKey(found, found[len(self._prefix) :] if is_wanted else None)

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release.close()

    def _opened(self, version: str, *, is_chosen: bool) -> Release:
        try:
            return open_release(self._directory, pointer_of(self._directory, version))
        except ReleaseRefused:
            # A tick that was begun elsewhere, or long ago, continues with what there is: the order of the keys is the same.
            if not is_chosen:
                raise
            return open_release(self._directory, self._directory.get_current())

    def _meets(self, key: bytes, value: bytes) -> bool:
        columns = shown_value(self._table, key, value)
        own = columns.get("value")
        if isinstance(own, list):
            columns = {str(number): each for number, each in enumerate(own)}
        return all(columns.get(name) == wanted for name, wanted in self._where.items())


def make_keys(settings: KeysSettings, lookups: LookupsDirectory) -> Keys:
    """Return the keys of a schedule; nothing is opened yet."""
    return LookupKeys(lookups, settings) if settings.lookup else NamedKeys(settings.names)
