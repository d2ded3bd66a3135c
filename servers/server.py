"""What all servers have in common: a directory, ports that stay, a process, and the question whether it answers."""

import json
import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar, Self

from servers.errors import NotRunning, StartFailed
from servers.locked import locked
from servers.ports import is_free, pick_port
from servers.process import Process

START_SECONDS = 120
"""A JVM that needs 4 s on a quiet machine was seen to need 23 s on a busy one."""

_STOP_SECONDS = 30
_LOOK_SECONDS = 0.05
_LINES_SHOWN = 8
_TELLING = re.compile("ERROR|FATAL|Exception")
PROCESS = "process.json"
"""Which process it is, in its directory."""

_PORTS = "ports.json"
_BEGINNING = "---- started by us ----"


class Server(ABC):
    """A server whose everything lies in `directory`: ports, process id, data, log.

    The value is a handle on the directory and keeps nothing else: another process that makes one with the same directory and
    settings has the same server. `wanted` names ports to be taken if they are free; once chosen, they stay.
    """

    name: ClassVar[str]
    port_names: ClassVar[Sequence[str]]

    def __init__(self, directory: Path, wanted: Mapping[str, int] | None = None) -> None:
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "server.log"
        self._ports_file = self.directory / _PORTS
        with locked(self.directory / "lock"):
            self.ports = self._chosen_ports(wanted or {})

    @property
    def process(self) -> Process | None:
        """None if it does not run."""
        return Process.read(self.directory / PROCESS)

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self, seconds: float = START_SECONDS) -> Self:
        """Start it on its ports and data, unless it runs, and wait until it answers.

        Raises:
            ProgramMissing, JarsMissing: Something has to be installed.
            StartFailed: It ended, or did not answer within `seconds`; then it is killed.
        """
        self.launch()
        self.wait_until_ready(seconds)
        return self

    def launch(self) -> None:
        """The same without waiting: several that are launched before the first is waited for come up together."""
        with locked(self.directory / "lock"):
            if not self.is_running:
                with self.log.open("a") as log:
                    log.write(f"{_BEGINNING}\n")
                command, environment = self._prepared()
                self._refuse_taken_ports()
                Process.launch(command, self.log, environment).write(self.directory / PROCESS)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Raises StartFailed if it ends, or does not answer within `seconds`; then it is killed."""
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
        """Whether it serves clients now. Never raises, and takes no longer than a few seconds."""

    def stop(self) -> None:
        """Let it end in good order, paused or not; killed after 30 s. Harmless if it does not run."""
        if process := self.process:
            process.terminate()
            process.finish(_STOP_SECONDS)

    def kill(self) -> None:
        """`kill -9`; it is gone on return. Harmless if it does not run."""
        if process := self.process:
            process.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nobody, from the return on and until `resume`."""
        process = self.process
        if process is None or not process.pause():
            raise NotRunning(self.name, self.directory)

    def resume(self) -> None:
        process = self.process
        if process is None or not process.send(signal.SIGCONT):
            raise NotRunning(self.name, self.directory)

    def restart(self, seconds: float = START_SECONDS) -> None:
        """Stop it and start it on the same ports and data."""
        self.stop()
        self.start(seconds)

    @abstractmethod
    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """Writes what it reads at its start, and gives command and environment. Called before each start."""

    def _chosen_ports(self, wanted: Mapping[str, int]) -> Mapping[str, int]:
        if self._ports_file.exists():
            known: dict[str, int] = json.loads(self._ports_file.read_bytes())
            return known
        ports: dict[str, int] = {}
        for name in self.port_names:
            while (port := pick_port(wanted.get(name))) in ports.values():
                pass
            ports[name] = port
        self._ports_file.write_text(json.dumps(ports))
        return ports

    def _refuse_taken_ports(self) -> None:
        """Else another server there could be taken for ours, until ours notices."""
        taken = [port for port in self.ports.values() if not is_free(port)]
        if taken:
            raise StartFailed(self.name, f"cannot listen on port {taken[0]}, another process does", self.log, ())

    def _failure(self, reason: str) -> StartFailed:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        said = text.rpartition(f"{_BEGINNING}\n")[2].splitlines()
        first = next((number for number, line in enumerate(said) if _TELLING.search(line)), -_LINES_SHOWN)
        return StartFailed(self.name, reason, self.log, said[first:][:_LINES_SHOWN])


def forget_taken_ports(directory: Path) -> bool:
    """Let the server of `directory` choose again at its next start if another process has one of its ports; whether it has to.

    Else they stay: whoever runs remembers the address.
    """
    with locked(directory / "lock"):
        ports = directory / _PORTS
        if Process.read(directory / PROCESS) is not None or not ports.exists():
            return False
        is_taken = not all(is_free(port) for port in json.loads(ports.read_bytes()).values())
        if is_taken:
            ports.unlink()
        return is_taken


def stop_all(directory: Path) -> list[str]:
    """Stop every server that was started anywhere below `directory`, whoever did; the directories of those that ran."""
    running = {path.parent: process for path in sorted(directory.rglob(PROCESS)) if (process := Process.read(path))}
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.finish(_STOP_SECONDS)
    return [str(each.relative_to(directory)) for each in running]
