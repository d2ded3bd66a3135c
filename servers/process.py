"""A process that outlives whoever started it, and is found again by its id and the instant it began."""

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
"""Letters of proc(5): all but Z and X, which have ended."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process and no other that later gets its id. `began` is in the kernel's ticks since `boot`."""

    pid: int
    began: int
    boot: str

    @classmethod
    def launch(cls, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Self:
        """Start it in a session of its own, with what it says appended to `log`. No signal of the terminal reaches it."""
        writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), writing, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(command[0], list(command), environment, file_actions=actions, setsid=True)
        fields = _fields(Path(f"/proc/{pid}/stat"))
        return cls(pid, int(fields[19]) if fields else 0, _BOOT.read_text().strip())

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The process that `path` names, if it still runs."""
        try:
            process = cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        return process if process.is_running else None

    def write(self, path: Path) -> None:
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(path)

    @property
    def is_running(self) -> bool:
        """Also while it is paused; no longer once it has ended and only waits to be reaped."""
        return self._is_it(_RUNNING)

    def send(self, number: signal.Signals) -> bool:
        """Signal it; false if it has ended. The id cannot pass to another process between the look and the signal."""
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
        """Whether it ended in time, with all of its threads: the first may be gone while another still holds a port.

        It need not be a child of ours; if it is one, it is reaped.
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
        """SIGSTOP; on return none of its threads runs any more. False if it has ended."""
        stopped = self.send(signal.SIGSTOP)
        while stopped and self.is_running and not _is_stopped(self.pid):
            sleep(_LOOK_SECONDS)
        return stopped

    def terminate(self) -> None:
        """SIGTERM, which reaches it also when it is paused."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def finish(self, seconds: float) -> None:
        """Wait until it has ended; SIGKILL if it has not in time."""
        if not self.wait(seconds):
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        while not self.wait(60):
            pass

    def _open(self, states: bytes) -> int | None:
        """A descriptor of it, None if it is in none of these states or is another one."""
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
    """Whether all of its threads are; they stop one after the other."""
    return all((fields := _fields(path)) is None or fields[0] in b"TZX" for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def _fields(stat: Path) -> list[bytes] | None:
    """From the third on, the state (proc(5)); None if there is no such process or thread."""
    try:
        return stat.read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
