"""A JSON file in the run directory, by which a process of a service tells something to others."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from storage.private_file import make_private


class OfService(Protocol):
    """What such a file holds: it names the process of the service, which is its supervisor's."""

    @property
    def service_process_id(self) -> int: ...


_Told = TypeVar("_Told", bound=OfService)


class RunFile(Generic[_Told]):
    """A file that is replaced whole. A disk without room must stop neither the service nor what the file tells of."""

    def __init__(self, run_directory: Path, name: str, kind: type[_Told]) -> None:
        self._path = run_directory / f"{name}.json"
        self._kind = kind

    def write(self, told: _Told) -> None:
        fresh = self._path.with_suffix(".json.new")
        with suppress(OSError):
            make_private(fresh).write_bytes(msgspec.json.encode(told) + b"\n")
            os.replace(fresh, self._path)

    def find(self, service_process_id: int) -> _Told | None:
        """Return what this service wrote last; None if it wrote nothing that can be read."""
        return self._find(self._path, service_process_id)

    def _find(self, path: Path, service_process_id: int) -> _Told | None:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=self._kind)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found if found.service_process_id == service_process_id else None

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()
