"""What a service serves by HTTP: the addresses, as the process that listens has written them."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from notification_service.status.run_file import RunFile


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


class ServedFile(RunFile[Served]):
    """The file of one process that serves by HTTP."""

    def __init__(self, run_directory: Path, name: str) -> None:
        super().__init__(run_directory, name, Served)

    def write_problem(self, why: str) -> None:
        """Write, as the supervisor, why nothing is served."""
        self.write(Served(os.getpid(), os.getpid(), problem=why))


def console_file(run_directory: Path) -> ServedFile:
    """The addresses of the console and of the metrics."""
    return ServedFile(run_directory, "console")


def probes_file(run_directory: Path) -> ServedFile:
    """The address of the health probes."""
    return ServedFile(run_directory, "probes")
