"""The base of all servers: a directory, fixed ports, a process, and a readiness check."""

import json
import random
import re
import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar, Self
from weakref import finalize

from notification_service.jobs.maven import locked
from servers.process import Process


class ServersError(Exception):
    """The base of the errors below; the text is meant for the user who started the servers."""


class ProgramMissing(ServersError):
    """A program that the servers need is missing, or too old."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")


class StartFailed(ServersError):
    """The server ended by itself, or did not answer in time. `log` is its log file."""

    def __init__(self, name: str, reason: str, log: Path, words: Sequence[str]) -> None:
        self.log = log
        lines = "".join(f"\n  {word}" for word in words)
        super().__init__(f"{name} {reason}; from {log}:{lines}" if lines else f"{name} {reason}; its log is {log}")


class NotRunning(ServersError):
    """A signal was requested for a server that does not run."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(f"{name} in {directory} does not run; start it first")


LOOPBACK = "127.0.0.1"

_LOWEST, _BEYOND = 15_000, 32_000
"""Below the client ports of Linux (32 768 and up), so that no client takes the port of a server that is down."""

_TRIES = 1_000


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now. Leftover connections of an ended server do not count."""
    probe = _bound(port, shares=True)
    if probe is not None:
        probe.close()
    return probe is not None


def hold_port(wanted: int | None = None) -> socket.socket:
    """Return a socket that is bound to `wanted` if that is free, else to a random free port.

    It does not listen. While it is open, a server can listen on the port, and no other holder of a port gets this one, even
    while that server is down.
    """
    if wanted is not None and (found := _bound(wanted, shares=True)) is not None:
        return found
    drawn = random.SystemRandom()
    for _ in range(_TRIES):
        if (found := _bound(drawn.randrange(_LOWEST, _BEYOND), shares=False)) is not None:
            return found
    raise OSError(f"no free port on {LOOPBACK} from {_LOWEST} to {_BEYOND - 1}")


def _bound(port: int, *, shares: bool) -> socket.socket | None:
    """Return a socket that lets a server listen beside it. With `shares` others may hold the port, too."""
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shares))
        made.bind((LOOPBACK, port))
    except OSError:
        made.close()
        return None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


START_SECONDS = 300
"""The default time limit of a start. A JVM that takes 4 s on a quiet machine took 43 s on a busy one."""

_STOP_SECONDS = 30
_LOOK_SECONDS = 0.05
_LINES_SHOWN = 8
_TELLING = re.compile("ERROR|FATAL|Exception")
PROCESS = "process.json"
"""The file in the server's directory that identifies its process."""

DATA = "data"
"""The name of a server's data in its directory: a directory, or a symbolic link to one that no other server uses."""

PORTS_FILE = "ports.json"
"""The file in the server's directory with its ports by their names."""

_BEGINNING = "---- started by us ----"


class Server(ABC):
    """A server that keeps everything in `directory`: ports, process id, data, log.

    The object has no state of its own: another process that makes one with the same directory and settings gets the same
    server. `wanted` names preferred ports; ports once chosen stay. The object that has chosen them holds them while it lives.
    """

    name: ClassVar[str]
    port_names: ClassVar[Sequence[str]]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """The signal that ends the server in good order, while clients are connected."""

    def __init__(self, directory: Path, wanted: Mapping[str, int] | None = None) -> None:
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "server.log"
        self._ports_file = self.directory / PORTS_FILE
        with locked(self.directory / "lock"):
            self.ports = self._chosen_ports(wanted or {})

    @property
    def process(self) -> Process | None:
        """The running process; None if the server does not run."""
        return Process.read(self.directory / PROCESS)

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self, seconds: float = START_SECONDS) -> Self:
        """Start the server on its ports and data unless it runs, and wait until it answers.

        Raises:
            ProgramMissing, JarsMissing: Something has to be installed.
            StartFailed: The server ended, or did not answer within `seconds` and was killed.
        """
        self.launch()
        self.wait_until_ready(seconds)
        return self

    def launch(self) -> None:
        """Start the server without waiting. Launch several before waiting for the first, so that they start in parallel."""
        with locked(self.directory / "lock"):
            if not self.is_running:
                with self.log.open("a") as log:
                    log.write(f"{_BEGINNING}\n")
                command, environment = self._prepared()
                self._refuse_taken_ports()
                Process.launch(command, self.log, environment, self.stop_signal).write(self.directory / PROCESS)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers. Raise StartFailed if it ends, or does not answer in time; then it is killed."""
        until = monotonic() + seconds
        while not self.is_ready():
            if not self.is_running:
                raise self._failure("ended by itself")
            if monotonic() > until:
                self.kill()
                raise self._failure(f"did not answer within {seconds:g} s")
            sleep(_LOOK_SECONDS)

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server serves clients now. Never raises, and takes a few seconds at most."""

    def stop(self) -> None:
        """End the server in good order, paused or not; kill it after 30 s. No effect if it does not run."""
        if process := self.process:
            process.terminate()
            process.finish(_STOP_SECONDS)

    def kill(self) -> None:
        """Kill the server and its child processes with SIGKILL, and wait until they are gone. No effect if it does not run."""
        if process := self.process:
            process.kill()

    def pause(self) -> None:
        """Stop the server with SIGSTOP: until `resume` it keeps its connections but answers none of them."""
        process = self.process
        if process is None or not process.pause():
            raise NotRunning(self.name, self.directory)

    def resume(self) -> None:
        process = self.process
        if process is None or not process.resume():
            raise NotRunning(self.name, self.directory)

    def restart(self, seconds: float = START_SECONDS) -> None:
        """Stop the server, and start it on the same ports and data."""
        self.stop()
        self.start(seconds)

    @abstractmethod
    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """Write the files that the server reads at its start; return command and environment. Called before each start."""

    def _chosen_ports(self, wanted: Mapping[str, int]) -> Mapping[str, int]:
        if self._ports_file.exists():
            known: dict[str, int] = json.loads(self._ports_file.read_bytes())
            return known
        held = {name: hold_port(wanted.get(name)) for name in self.port_names}
        for each in held.values():
            finalize(self, each.close)
        ports: dict[str, int] = {name: each.getsockname()[1] for name, each in held.items()}
        self._ports_file.write_text(json.dumps(ports))
        return ports

    def _refuse_taken_ports(self) -> None:
        """Raise if a port is taken: another server on it could be mistaken for this one."""
        taken = [port for port in self.ports.values() if not is_free(port)]
        if taken:
            raise StartFailed(self.name, f"cannot listen on port {taken[0]}, another process uses it", self.log, ())

    def _failure(self, reason: str) -> StartFailed:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = text.rpartition(f"{_BEGINNING}\n")[2].splitlines()
        first = next((number for number, line in enumerate(lines) if _TELLING.search(line)), -_LINES_SHOWN)
        return StartFailed(self.name, reason, self.log, lines[first:][:_LINES_SHOWN])


def forget_taken_ports(directory: Path) -> bool:
    """Make the server of `directory` choose new ports at its next start if one is taken; return whether that is so.

    A running server keeps its ports, since its users know the address.
    """
    with locked(directory / "lock"):
        ports = directory / PORTS_FILE
        if Process.read(directory / PROCESS) is not None or not ports.exists():
            return False
        is_taken = not all(is_free(port) for port in json.loads(ports.read_bytes()).values())
        if is_taken:
            ports.unlink()
        return is_taken


def stop_all(directory: Path) -> list[str]:
    """Stop every server started below `directory`, by any process; return the directories of those that ran."""
    running = {path.parent: process for path in sorted(directory.rglob(PROCESS)) if (process := Process.read(path))}
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.finish(_STOP_SECONDS)
    return [str(each.relative_to(directory)) for each in running]


def remove_all(directory: Path) -> None:
    """Stop every server below `directory`, and delete it, with the data that a server keeps elsewhere and links to."""
    stop_all(directory)
    for link in directory.rglob(DATA):
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
