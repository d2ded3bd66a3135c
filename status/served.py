"""What a service serves by HTTP: the addresses, as the process that listens has written them."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec


class Served(msgspec.Struct, frozen=True):
    """`urls` by name, such as `console`; `problem` says why nothing is served.

    `service_process_id` is the supervisor's, or the process's own where it runs by itself.
    """

    service_process_id: int
    process_id: int
    urls: Mapping[str, str] = {}
    problem: str | None = None


class ServedStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of it: the addresses by name, and notes about what is not served."""

    http: Mapping[str, str] = {}
    http_notes: tuple[str, ...] = ()


class ServedFile:
    """A file in the run directory, replaced whole. A disk without room must stop neither the service nor what is served."""

    def __init__(self, run_directory: Path, name: str) -> None:
        self._path = run_directory / f"{name}.json"

    def write(self, served: Served) -> None:
        fresh = self._path.with_suffix(".json.new")
        with suppress(OSError):
            fresh.write_bytes(msgspec.json.encode(served) + b"\n")
            os.replace(fresh, self._path)

    def find(self, service_process_id: int) -> Served | None:
        """Return what this service wrote last; None if it wrote nothing that can be read."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=Served)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found if found.service_process_id == service_process_id else None

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def console_file(run_directory: Path) -> ServedFile:
    """The addresses of the console and of the metrics."""
    return ServedFile(run_directory, "console")


def probes_file(run_directory: Path) -> ServedFile:
    """The address of the health probes."""
    return ServedFile(run_directory, "probes")
