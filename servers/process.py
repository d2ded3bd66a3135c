"""A process that outlives its starter, and is identified by its id and start time."""

import json
import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep
from typing import Self

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LOOK_SECONDS = 0.001
_RUNNING, _ANY = b"RSDTtIKWP", b"RSDTtIKWPZX"
"""State letters of proc(5); Z and X, which `_RUNNING` does not have, mean that the process has ended."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, not to be confused with a later one of the same id. `began` is in kernel ticks since `boot`.

    `stop` is the number of the signal that ends it in good order. A pause and a kill also reach its children: those of
    PostgreSQL serve its clients.
    """

    pid: int
    began: int
    boot: str
    stop: int = signal.SIGTERM

    @classmethod
    def launch(
        cls, command: Sequence[str], log: Path, environment: Mapping[str, str], stop: signal.Signals = signal.SIGTERM
    ) -> Self:
        """Start a process in a session of its own, so that no terminal signal reaches it; its output is appended to `log`."""
        writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), writing, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(command[0], list(command), environment, file_actions=actions, setsid=True)
        return cls._of(pid, stop)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the process that the file `path` describes, if it still runs."""
        try:
            process = cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        return process if process.is_running else None

    @classmethod
    def _of(cls, pid: int, stop: signal.Signals = signal.SIGTERM) -> Self:
        fields = _fields(Path(f"/proc/{pid}/stat"))
        return cls(pid, int(fields[19]) if fields else 0, _BOOT.read_text().strip(), stop)

    def write(self, path: Path) -> None:
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(path)

    @property
    def is_running(self) -> bool:
        """Whether it runs or is paused. False once it has ended, even if it was not reaped yet."""
        return self._is_it(_RUNNING)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; return False if the process has ended. No other process with its id can get the signal."""
        descriptor = self._open(_RUNNING)
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait(self, seconds: float) -> bool:
        """Return whether the process and all its threads ended in time: another thread may still hold a port.

        The process need not be a child; a child is reaped.
        """
        descriptor = self._open(_ANY)
        if descriptor is not None:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            answer = ended.poll(seconds * 1_000)
            os.close(descriptor)
            if not answer:
                return False
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return True

    def pause(self) -> bool:
        """Send SIGSTOP, and return once all threads have stopped, those of its children too; False if the process has ended."""
        stopped = self.send(signal.SIGSTOP)
        while stopped and self.is_running and not _is_stopped(self.pid):
            sleep(_LOOK_SECONDS)
        for child in self._children():
            child.pause()
        return stopped

    def resume(self) -> bool:
        """Send SIGCONT to the process and its children; return False if the process has ended."""
        for child in self._children():
            child.send(signal.SIGCONT)
        return self.send(signal.SIGCONT)

    def terminate(self) -> None:
        """Send the signal `stop`, and SIGCONT so that a paused process gets it too."""
        self.send(signal.Signals(self.stop))
        self.resume()

    def finish(self, seconds: float) -> None:
        """Wait until the process has ended; send SIGKILL if it does not end in time."""
        if not self.wait(seconds):
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, and wait until all are gone."""
        self.pause()  # It starts no further child.
        children = self._children()
        self.send(signal.SIGKILL)
        for child in children:
            child.kill()
        while not self.wait(60):
            pass

    def _children(self) -> list[Self]:
        """Return the processes that it started and that have not ended; none if it has ended itself."""
        if not self.is_running:
            return []
        return [self._of(pid) for pid in _child_ids(self.pid)]

    def _open(self, states: bytes) -> int | None:
        """Return a pidfd; None if the process is in none of these states or another one has its id."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self._is_it(states):
            return descriptor
        os.close(descriptor)
        return None

    def _is_it(self, states: bytes) -> bool:
        fields = _fields(Path(f"/proc/{self.pid}/stat"))
        if fields is None or fields[0] not in states:
            return False
        return int(fields[19]) == self.began and _BOOT.read_text().strip() == self.boot


def _is_stopped(pid: int) -> bool:
    """Return whether all threads have stopped; they stop one after the other."""
    return all((fields := _fields(path)) is None or fields[0] in b"TZX" for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def _child_ids(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # The thread has ended meanwhile.
            found += map(int, path.read_bytes().split())
    return found


def _fields(stat: Path) -> list[bytes] | None:
    """Return the fields from the third, the state, on (proc(5)); None without such a process or thread."""
    try:
        return stat.read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
