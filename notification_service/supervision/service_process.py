"""The service as a child process, as an operator would run it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from resequencer.errors import ResequencerError
from storage.private_file import make_private

_STOP_SECONDS = 30


def own_command(*arguments: str, module: str = "notification_service") -> list[str]:
    """Return the command line of another process of this program, or of a module of ours.

    With `-P` a module in the working directory that has the name of one of ours is not taken for it.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


class ServiceDied(ResequencerError):
    """The service ended by itself; the text ends with its last log lines."""


class ServiceProcess:
    """The child process `resequencer run --alone`, or another verb, with these arguments; its log goes to `log`."""

    def __init__(self, arguments: Sequence[str], log: Path, verb: Sequence[str] = ("run", "--alone")) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with make_private(log).open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, with the arguments that were checked here.
                own_command(*verb, *arguments), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def check(self) -> None:
        """Raise ServiceDied if the process has ended."""
        if self._process.poll() is not None:
            words = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
            raise ServiceDied("\n".join([f"the service ended with {self._process.returncode}:", *words]))

    def stop(self) -> int:
        """Let the service drain and return its exit code. It is killed if it does not end in time."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
